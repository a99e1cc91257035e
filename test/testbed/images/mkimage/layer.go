package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is one file, directory or symbolic link of a layer.
type entry struct {
	kind byte // tar.TypeReg, tar.TypeDir or tar.TypeSymlink
	mode int64
	link string
	data []byte
}

// layer is a file tree by path. Use make, because the zero value is not usable.
type layer map[string]entry

// add adds an entry with a name, and missing parent directories.
func (l layer) add(name string, e entry) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := l[dir]; !ok {
			l[dir] = entry{kind: tar.TypeDir, mode: 0o755}
		}
	}
	l[name] = e
}

// tar returns the layer as a tar archive with sorted entries and without times, so that the
// same tree always results in the same bytes.
func (l layer) tar() ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(l)) {
		e := l[name]
		header := &tar.Header{
			Typeflag: e.kind, Name: name, Linkname: e.link, Mode: e.mode, Size: int64(len(e.data)),
			ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatPAX,
		}
		if e.kind == tar.TypeDir {
			header.Name += "/"
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("layer entry %s: %w", name, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, fmt.Errorf("layer entry %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
