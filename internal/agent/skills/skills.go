// Package skills makes the skills that agents can load: directories of Markdown files, in
// the form of the Agent Skills specification.
//
//	Gateway   how to use Ferrule                skill://ferrule/use-ferrule
//	Kind      how to use one Kind of device     skill://ferrule/kinds/NAME
//
// Programs ask a person before they load a skill, and bind the answer to the digests of its
// files. So the files depend only on what devices of the Kind say about themselves and on
// their overlays, not on the board, the node, the order or the time.
//
// What a device says is untrusted. SKILL.md has only names of it, in code spans; texts and
// schemas are in other files, quoted line by line and marked as the device's words.
package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Root is how the URIs of all skills of the gateway begin. No device has such a URI.
const Root = "skill://ferrule/"

// MainFile is the file of a skill that is read first.
const MainFile = "SKILL.md"

// Limits of a skill. Programs refuse one with more than 512 files or 16 MiB.
const (
	maxMain      = 32 << 10
	maxReference = 256 << 10
)

// Skill is a directory of files.
type Skill struct {
	// Name and Description are the front matter of SKILL.md.
	Name, Description string
	// URI is that of the directory, without a slash at the end.
	URI string
	// Files are sorted by path.
	Files []File
}

// File is a Markdown file of a skill.
type File struct {
	Path   string // relative to the skill
	Text   string
	Size   int    // of Text
	Digest string // of Text: sha256: and 64 hexadecimal digits
}

// Main returns the URI of SKILL.md.
func (s *Skill) Main() string { return s.URI + "/" + MainFile }

// File returns the file with a URI, or nil.
func (s *Skill) File(uri string) *File {
	name, below := strings.CutPrefix(uri, s.URI+"/")
	i := slices.IndexFunc(s.Files, func(f File) bool { return f.Path == name })
	if !below || i < 0 {
		return nil
	}
	return &s.Files[i]
}

// WithoutTexts returns a copy that lists the files, and does not have their texts.
func (s *Skill) WithoutTexts() *Skill {
	listed := *s
	listed.Files = slices.Clone(s.Files)
	for i := range listed.Files {
		listed.Files[i].Text = ""
	}
	return &listed
}

// Child is an entry of a directory of a skill: a file, or a directory if File is nil.
type Child struct {
	Name, URI string
	File      *File
}

// Children returns the entries of the directory with a URI, sorted by name. It returns nil
// if the skill has no such directory.
func (s *Skill) Children(uri string) (all []Child) {
	dir, ok := strings.CutPrefix(uri+"/", s.URI+"/")
	if !ok {
		return nil
	}
	for i := range s.Files {
		rest, below := strings.CutPrefix(s.Files[i].Path, dir)
		if !below {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		child := Child{Name: name, URI: uri + "/" + name}
		if !deeper {
			child.File = &s.Files[i]
		}
		if len(all) == 0 || all[len(all)-1].Name != name {
			all = append(all, child)
		}
	}
	return all
}

// draft is a skill without its front matter.
type draft struct {
	dir         string // of the skill's URI
	name        string // the skill's name; if the content is part of it, how it begins
	description string
	body        string
	references  map[string]string // by file name
}

// fixed returns the skill with the draft's name.
func (d draft) fixed() *Skill { return d.named(d.name) }

// hashed returns the skill with a name that ends in digits of the hash of its content:
// what differs has another name, and what is the same has the same one.
func (d draft) hashed() *Skill {
	const digits = 16
	sum := sha256.New()
	for _, f := range d.named("").Files {
		sum.Write([]byte(f.Path + "\x00" + f.Digest + "\n"))
	}
	return d.named(d.name + "-" + hex.EncodeToString(sum.Sum(nil))[:digits])
}

func (d draft) named(name string) *Skill {
	s := &Skill{Name: name, Description: d.description, URI: Root + path.Join(d.dir, name)}
	front := "---\nname: " + name + "\ndescription: " + string(ferrule.AppendString(nil, d.description)) + "\n---\n\n"
	s.Files = append(s.Files, newFile(MainFile, front+d.body))
	for file, text := range d.references {
		s.Files = append(s.Files, newFile("references/"+file, text))
	}
	slices.SortFunc(s.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return s
}

func newFile(name, text string) File {
	sum := sha256.Sum256([]byte(text))
	return File{Path: name, Text: text, Size: len(text), Digest: "sha256:" + hex.EncodeToString(sum[:])}
}
