package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed samples/*.yaml
var samples embed.FS

// writeSamples puts the sample manifests into a new folder dir, so that they are
// read as anybody's manifests are.
func writeSamples(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("sample manifests: %w", err)
	}
	files, err := fs.Sub(samples, "samples")
	if err != nil {
		return fmt.Errorf("sample manifests: %w", err)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.CopyFS(dir, files))
}
