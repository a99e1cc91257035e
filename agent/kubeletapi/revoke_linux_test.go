package kubeletapi

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFileToken_RefusesAllWhileItsFileIsUnusable(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"deleted":   func(string) error { return nil },
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"two words": func(path string) error { return os.WriteFile(path, []byte("s3cret s3cret"), 0o600) },
		"too large": func(path string) error { return os.WriteFile(path, make([]byte, maxFileBytes+1), 0o600) },
		"a pipe":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder":  func(path string) error { return os.Mkdir(path, 0o700) },
		"a device":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"a loop":    func(path string) error { return os.Symlink(path, path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "token")
			require.NoError(t, os.WriteFile(file, []byte("s3cret"), 0o600))
			var log bytes.Buffer
			token, err := newFileToken(file, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			allows := func(sent string) bool {
				token.file.checkedAt = time.Time{}
				return token.allows(sent)
			}
			const begins, ends = "the token that it had before is refused until the file can be read", "could read the certificate or token files again"
			require.True(t, allows("s3cret"))
			for round := 1; round <= 2; round++ {
				// The file is later restored with the same modification time.
				require.NoError(t, os.Rename(file, file+".away"))
				require.NoError(t, spoil(file))
				for range 3 {
					require.False(t, allows("s3cret"))
					require.False(t, allows(""))
				}
				require.NoError(t, os.RemoveAll(file))
				require.False(t, allows("s3cret"))
				require.Equal(t, round, strings.Count(log.String(), begins), log.String())
				require.Equal(t, round-1, strings.Count(log.String(), ends), log.String())
				require.NoError(t, os.Rename(file+".away", file))
				for range 3 {
					require.True(t, allows("s3cret"))
				}
				require.Equal(t, round, strings.Count(log.String(), begins), log.String())
				require.Equal(t, round, strings.Count(log.String(), ends), log.String())
			}
			require.NotContains(t, log.String(), "s3cret")
		})
	}
}

func TestFileToken_LinksAreFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one"), []byte("s3cret"), 0o600))
	require.NoError(t, os.Symlink("one", filepath.Join(dir, "token")))
	token, err := newFileToken(filepath.Join(dir, "token"), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.True(t, token.allows("s3cret"))
}
