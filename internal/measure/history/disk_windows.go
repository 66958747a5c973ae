package history

import "golang.org/x/sys/windows"

// FreeSpace returns how many bytes the user can write to the file system of a folder.
func FreeSpace(dir string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	return free, err
}
