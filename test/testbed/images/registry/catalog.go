package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// blob is the position and the type of a blob.
type blob struct {
	file         string
	offset, size int64
	mediaType    string
}

// catalog is the content of the registry. It does not change after loading.
type catalog struct {
	blobs map[string]blob   // by digest
	tags  map[string]string // digest by "repository:tag"
}

// index is the used part of an image layout's index.json.
type index struct {
	Manifests []struct {
		MediaType, Digest string
		Annotations       map[string]string
	}
}

// load reads all tars below dir.
func load(dir string) (*catalog, error) {
	c := &catalog{blobs: map[string]blob{}, tags: map[string]string{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".tar" {
			return err
		}
		if err := c.add(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	return c, err
}

// add reads one tar. The index must come before the blobs that it describes.
func (c *catalog) add(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	mediaTypes := map[string]string{}
	pos := &position{r: f}
	for r := tar.NewReader(pos); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if digest, ok := strings.CutPrefix(header.Name, "blobs/sha256/"); ok {
			digest = "sha256:" + digest
			c.blobs[digest] = blob{file: path, offset: pos.n, size: header.Size, mediaType: mediaTypes[digest]}
			continue
		}
		if header.Name != "index.json" {
			continue
		}
		var idx index
		if err := json.NewDecoder(r).Decode(&idx); err != nil {
			return fmt.Errorf("index.json: %w", err)
		}
		for _, m := range idx.Manifests {
			mediaTypes[m.Digest] = m.MediaType
			if _, name, ok := strings.Cut(m.Annotations["io.containerd.image.name"], "/"); ok {
				c.tags[name] = m.Digest
			}
		}
	}
}

// ServeHTTP serves the read-only part of the OCI distribution API.
func (c *catalog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	if ok && path == "" {
		_, _ = io.WriteString(w, "{}") // an error, here and below, means that the client has disconnected
		return
	}
	digest := c.digest(path)
	b, known := c.blobs[digest]
	if !ok || !known {
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, http.StatusNotFound)
		return
	}
	f, err := os.Open(b.file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = f.Close() }()
	if b.mediaType == "" {
		b.mediaType = "application/octet-stream"
	}
	w.Header().Set("Content-Type", b.mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", strconv.FormatInt(b.size, 10))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = io.Copy(w, io.NewSectionReader(f, b.offset, b.size))
}

// digest returns the digest for a path below /v2/: REPOSITORY/blobs/DIGEST or
// REPOSITORY/manifests/DIGEST-OR-TAG. It is empty for an unknown tag.
func (c *catalog) digest(path string) string {
	if _, digest, ok := strings.Cut(path, "/blobs/"); ok {
		return digest
	}
	repo, ref, _ := strings.Cut(path, "/manifests/")
	if strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	return c.tags[repo+":"+ref]
}

// position counts the bytes read. It hides the file's Seek, so that the position after a tar
// header is the offset of the entry's data.
type position struct {
	r io.Reader
	n int64
}

func (p *position) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, err
}
