//go:build !linux

package podrunner

import (
	"errors"
	"os"
)

func openBelow(root *os.Root, path string) (*os.File, error) { return root.Open(path) }

func bindOpened(*os.File, string) error { return errors.ErrUnsupported }

func unbindPath(string) error { return nil }
