package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRun_SameInputGivesTheSameBytes(t *testing.T) {
	var first []byte
	for range 3 {
		out := filepath.Join(t.TempDir(), "image.tar")
		args := []string{"-o", out, "-name", "kubeparts.test/x:1", "-file", os.Args[0] + ":/bin/x", "-link", "/bin/y=x", "-dir", "/tmp:1777"}
		if err := run(args); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = data
		}
		if !bytes.Equal(first, data) {
			t.Fatal("two runs wrote different bytes")
		}
	}
}

func TestLayer_ParentsBeforeChildren(t *testing.T) {
	files := layer{}
	if err := files.addText("/a/b/c=text"); err != nil {
		t.Fatal(err)
	}
	data, err := files.tar()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	if want := []string{"a/", "a/b/", "a/b/c"}; !slices.Equal(names, want) {
		t.Fatalf("got %v, want %v", names, want)
	}
}

func TestAddFile_SetsTheMode(t *testing.T) {
	files := layer{}
	for _, file := range []string{os.Args[0] + ":/program", os.Args[0] + ":/setuid:6755"} {
		if err := files.addFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if got := []int64{files["program"].mode, files["setuid"].mode}; !slices.Equal(got, []int64{0o755, 0o6755}) {
		t.Fatalf("modes %o", got)
	}
}

func TestRun_InvalidArgumentsAreRejected(t *testing.T) {
	for _, args := range []string{"-o x", "-o x -name n -file missing", "-o x -name n -file /dev/null:/a:9", "-o x -name n -dir /tmp:9", "-o x -name n -link y"} {
		if err := run(strings.Fields(args)); err == nil {
			t.Errorf("invalid arguments were accepted: %q", args)
		}
	}
}
