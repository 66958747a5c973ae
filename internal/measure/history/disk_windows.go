package history

import "golang.org/x/sys/windows"

// FreeSpace is how many bytes a user can still write where a folder is.
func FreeSpace(dir string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	return free, err
}
