//go:build !unix

package filelock

import "os"

// Lock creates the file if it does not exist. It does not lock the file, because Unix
// advisory locks are not available on this system.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}
