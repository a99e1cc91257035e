package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// Media types of the OCI image specification.
const (
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
)

// image is the configuration of an image. Its JSON is the "config" of the OCI image
// configuration.
type image struct {
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	Env        []string `json:",omitempty"`
	User       string   `json:",omitempty"`
}

// descriptor refers to a blob by its digest.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func describe(mediaType string, blob []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(blob)), Size: len(blob)}
}

// write writes the image as an image-layout tar under the given name.
func (i image) write(w io.Writer, name string, files layer) error {
	data, err := files.tar()
	if err != nil {
		return err
	}
	layerDesc := describe(typeLayer, data)
	config, err := json.Marshal(map[string]any{
		"created": time.Unix(0, 0).UTC(), "architecture": runtime.GOARCH, "os": "linux", "config": i,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDesc.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest,
		"config": describe(typeConfig, config), "layers": []descriptor{layerDesc},
	})
	if err != nil {
		return err
	}
	entry := describe(typeManifest, manifest)
	entry.Platform = map[string]string{"architecture": runtime.GOARCH, "os": "linux"}
	entry.Annotations = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{entry}})
	if err != nil {
		return err
	}
	return writeLayout(w, index, data, config, manifest)
}

func writeLayout(w io.Writer, index []byte, blobs ...[]byte) error {
	out := tar.NewWriter(w)
	put := func(name string, data []byte) error {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(0, 0).UTC(),
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	}
	if err := put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := put("index.json", index); err != nil {
		return err
	}
	for _, b := range blobs {
		digest := strings.TrimPrefix(describe("", b).Digest, "sha256:")
		if err := put("blobs/sha256/"+digest, b); err != nil {
			return err
		}
	}
	return out.Close()
}
