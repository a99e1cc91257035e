//go:build !linux

package imagegc

import "errors"

func statfs(string) (Usage, error) { return Usage{}, errors.ErrUnsupported }
