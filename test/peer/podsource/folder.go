package podsource

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// write writes the files of a step to the directory. An unchanged file is not written.
func write(t *testing.T, dir string, s step) {
	t.Helper()
	targets := filepath.Join(dir, "targets")
	dir = filepath.Join(dir, "manifests")
	if s.Missing {
		require.NoError(t, os.RemoveAll(dir))
		return
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.MkdirAll(targets, 0o755))
	there, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range there {
		if !slices.ContainsFunc(s.Files, func(f file) bool { return f.Name == e.Name() && !f.changed(dir) }) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	for _, f := range s.Files {
		path := filepath.Join(dir, f.Name)
		if !f.changed(dir) {
			continue
		}
		if f.Link {
			require.NoError(t, os.Symlink(filepath.Join(targets, f.Name), path))
			path = filepath.Join(targets, f.Name)
		}
		require.NoError(t, os.WriteFile(path, []byte(f.text()), 0o644))
		require.NoError(t, os.Chtimes(path, time.Now(), time.Now()))
	}
	for _, e := range s.Entries {
		require.NoError(t, e.write(filepath.Join(dir, e.Name), targets))
	}
}

// changed reports whether the directory lacks the file, or has it with other content.
func (f file) changed(dir string) bool {
	path := filepath.Join(dir, f.Name)
	info, err := os.Lstat(path)
	if err != nil || f.Link != (info.Mode()&os.ModeSymlink != 0) {
		return true
	}
	data, err := os.ReadFile(path)
	return err != nil || string(data) != f.text()
}

func (e entry) write(path, folder string) error {
	switch e.Kind {
	case "directory":
		return os.Mkdir(path, 0o755)
	case "symlink to a directory":
		return os.Symlink(folder, path)
	case "dangling symlink":
		return os.Symlink(path+".nothing", path)
	case "symlink loop":
		return os.Symlink(path, path)
	default:
		return syscall.Mkfifo(path, 0o644)
	}
}

// passes computes how often our source may read.
type passes struct {
	files  map[string]pass
	answer *string // the last response
}

// A pass is the state of a file that was read.
type pass struct {
	text    string
	since   time.Time
	settled bool
}

// expect returns how many files or responses our source must read in a step: a file until it
// has been unchanged for two seconds, and a response if it differs from the last one.
func (p *passes) expect(w *world, s step) (n int) {
	if !readsStep(w, s) {
		p.files = nil // they count as new files when they exist again
		return 0
	}
	if w.HTTP {
		text := s.Files[0].text()
		if p.answer != nil && *p.answer == text {
			return 0
		}
		p.answer = &text
		return 1
	}
	files := map[string]pass{}
	for _, f := range s.Files {
		if !isManifest(w, f.Name) {
			continue
		}
		now := pass{text: f.text(), since: time.Now()}
		old, known := p.files[f.Name]
		if known = known && old.text == now.text; known {
			now.since, now.settled = old.since, time.Since(old.since) >= 2*time.Second
		}
		if !known || !old.settled {
			n++
		}
		if known && old.settled {
			now.settled = true
		}
		files[f.Name] = now
	}
	p.files = files
	return n
}
