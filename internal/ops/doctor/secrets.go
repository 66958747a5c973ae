package doctor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// endsSoon is the time before the end of a certificate at which it should have been renewed.
const endsSoon = 14 * 24 * time.Hour

// certificates checks the certificates that the configuration names: whether they can be
// used, end soon, and are for the names under which the gateway is reached.
func (d *Doctor) certificates(cfg config.Config) (all []Finding) {
	hosts := cfg.Agents.Hosts
	if host := hostOf(cfg.Auth.URL); host != "" {
		hosts = append([]string{host}, hosts...)
	}
	if cfg.TLS != (config.TLS{}) {
		all = append(all, d.certificate("tls", cfg.TLS, hosts))
	}
	if cfg.DialIn.TLS != (config.TLS{}) {
		all = append(all, d.certificate("dial_in.tls", cfg.DialIn.TLS, []string{hostOf(cfg.DialIn.URL)}))
	}
	return all
}

// hostOf returns the host of an https URL; "" for others.
func hostOf(at string) string {
	if u, err := url.Parse(at); err == nil && u.Scheme == "https" {
		return u.Hostname()
	}
	return ""
}

func (d *Doctor) certificate(key string, files config.TLS, hosts []string) Finding {
	f := Finding{Check: "certificate", About: files.Cert, State: Wrong}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	switch {
	case errors.Is(err, os.ErrPermission):
		f.State, f.Found, f.Next = Note, fmt.Sprintf("%s: you may not read it: %v", key, err), "run `ferrule doctor` as the user of the gateway to check it"
		return f
	case err != nil:
		f.Found, f.Next = fmt.Sprintf("%s: %v", key, err), "correct the files; `ferrule tls init` makes new ones"
		return f
	}
	leaf := pair.Leaf
	ends := leaf.NotAfter.Format(time.DateOnly)
	var missing []string
	for _, host := range hosts {
		if host != "" && leaf.VerifyHostname(host) != nil {
			missing = append(missing, host)
		}
	}
	switch left := leaf.NotAfter.Sub(d.now()); {
	case left < 0:
		f.Found, f.Next = fmt.Sprintf("%s: the certificate ended on %s; nobody can connect", key, ends), "renew it; for one of `ferrule tls init`, run that again with --dir"
	case d.now().Before(leaf.NotBefore):
		f.Found, f.Next = fmt.Sprintf("%s: the certificate is valid only from %s", key, leaf.NotBefore.Format(time.DateTime)), "set the clock of this machine, or make the certificate again"
	case left < endsSoon:
		f.Found, f.Next = fmt.Sprintf("%s: the certificate ends on %s", key, ends), "renew it, and find out why that did not happen; the log may say why"
	case len(missing) > 0:
		f.Found = fmt.Sprintf("%s: the certificate is not for %s; agents and devices that use this name refuse it", key, strings.Join(missing, ", "))
		f.Next = "get a certificate for it; for one of `ferrule tls init`, run that again with --dir and --name"
	default:
		f.State, f.Found = Fine, fmt.Sprintf("%s: the certificate is valid until %s", key, ends)
	}
	return f
}

// exposedSecrets checks that other users cannot read the files with secrets that the
// configuration names. A group may: that of the service.
func (d *Doctor) exposedSecrets(cfg config.Config) (all []Finding) {
	if d.system == "windows" { // its permissions are not those of the file mode
		return nil
	}
	files := []string{cfg.TLS.Key, cfg.DialIn.TLS.Key, cfg.Cluster.Secret, cfg.Cluster.Credentials, cfg.Approvals.Webhook.SecretFile}
	for _, t := range cfg.Auth.Tokens {
		files = append(files, t.File)
	}
	for _, i := range cfg.Auth.Issuers {
		files = append(files, i.ClientSecretFile)
	}
	for _, c := range cfg.Auth.Server.Clients {
		files = append(files, c.SecretFile)
	}
	for _, e := range cfg.Endpoints {
		files = append(files, e.File)
	}
	for _, h := range cfg.Devices.HTTP {
		files = append(files, h.File)
	}
	for _, b := range cfg.Devices.MQTT {
		files = append(files, b.PasswordFile, b.Key)
	}
	for _, h := range cfg.Homes() {
		files = append(files, h.File)
	}
	for _, h := range cfg.Hooks {
		files = append(files, h.File)
	}
	var open []string
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o007 != 0 {
			open = append(open, file)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return []Finding{{
		Check: "secrets", About: open[0], State: Wrong, Found: "other users of this machine can read or change files with secrets: " + strings.Join(open, ", "),
		Next: "run `chmod o= " + strings.Join(open, " ") + "`; then replace these secrets, because somebody may have read them",
	}}
}
