//go:build !linux

package podrunner

import (
	"errors"
	"io/fs"
	"os"
)

func chmodInside(folder *os.Root, name string, mode fs.FileMode) error {
	return folder.Chmod(name, mode)
}

func bindOpened(*os.File, string) error { return errors.ErrUnsupported }

func unbindPath(string) error { return nil }
