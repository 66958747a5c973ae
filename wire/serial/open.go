package serial

import "errors"

var (
	errUnplugged = errors.New("it was unplugged")
	errForbidden = errors.New("permission denied: add yourself to the group that owns it, mostly dialout (`sudo usermod -aG dialout $USER`), and log in again")
)
