//go:build !unix

package main

import "os"

// lockFile only makes the file: there are no advisory locks to take here.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}
