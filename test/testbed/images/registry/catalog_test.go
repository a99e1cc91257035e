package main

import (
	"archive/tar"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// testCatalog returns a catalog with one image, kubeparts.test/x:1, with a manifest and one
// blob.
func testCatalog(t *testing.T) *catalog {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "x.tar"))
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for _, e := range []struct{ name, data string }{
		{"index.json", `{"manifests":[{"mediaType":"m/t","digest":"sha256:11","annotations":{"io.containerd.image.name":"kubeparts.test/x:1"}}]}`},
		{"blobs/sha256/11", "the manifest"},
		{"blobs/sha256/22", "a layer"},
	} {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCatalog_ServesManifestsAndBlobs(t *testing.T) {
	c := testCatalog(t)
	for _, tc := range []struct {
		method, path string
		code         int
		mediaType    string
		body         string
	}{
		{http.MethodGet, "/v2/", 200, "text/plain; charset=utf-8", "{}"},
		{http.MethodGet, "/v2/x/manifests/1", 200, "m/t", "the manifest"},
		{http.MethodHead, "/v2/x/manifests/1", 200, "m/t", ""},
		{http.MethodGet, "/v2/x/manifests/sha256:11", 200, "m/t", "the manifest"},
		{http.MethodGet, "/v2/x/blobs/sha256:22", 200, "application/octet-stream", "a layer"},
		{http.MethodGet, "/v2/x/manifests/2", 404, "text/plain; charset=utf-8", "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\"}]}\n"},
		{http.MethodGet, "/elsewhere", 404, "text/plain; charset=utf-8", "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\"}]}\n"},
	} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
		if w.Code != tc.code || w.Header().Get("Content-Type") != tc.mediaType || w.Body.String() != tc.body {
			t.Errorf("%s %s: %d %q %q", tc.method, tc.path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	}
}
