package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hostPath returns the path of a hostPath volume. It checks that the file or
// directory has the requested type. If the file or directory is missing and the
// type allows it, hostPath creates the file or directory. hostPath follows
// links, because the administrator controls the node's paths.
func hostPath(source *corev1.HostPathVolumeSource) (string, error) {
	path := source.Path
	if path == "" {
		return "", errors.New("hostPath: the path is empty")
	}
	if slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		return "", fmt.Errorf("hostPath: %s must not contain '..'", path)
	}
	if !filepath.IsAbs(path) { // a relative path would depend on the agent's working directory
		return "", fmt.Errorf("hostPath: %s is not an absolute path", path)
	}
	if source.Type == nil || *source.Type == corev1.HostPathUnset {
		return path, nil
	}
	kind := *source.Type
	info, err := os.Stat(path)
	absent := errors.Is(err, fs.ErrNotExist)
	name, is := expected(kind)
	switch {
	case absent && kind == corev1.HostPathDirectoryOrCreate:
		return path, os.MkdirAll(path, 0o755)
	case absent && kind == corev1.HostPathFileOrCreate:
		err := create(path)
		if !errors.Is(err, fs.ErrExist) {
			return path, err
		}
		if info, err = os.Stat(path); err != nil || !is(info.Mode()) { // another process has meanwhile created something that is not a file
			return "", fmt.Errorf("hostPath type check failed: %s is not a %s", path, name)
		}
	case is == nil:
		return "", fmt.Errorf("%s is an invalid volume type", kind)
	case err != nil || !is(info.Mode()):
		return "", fmt.Errorf("hostPath type check failed: %s is not a %s", path, name)
	}
	return path, nil
}

// create creates an empty file. It fails with [fs.ErrExist] if the path exists.
// If a container has meanwhile created a pipe, a device or a link there, create
// does not open or follow it.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// expected returns the name of a hostPath type, and a function that reports
// whether a file mode has this type. The function is nil if the type is
// invalid.
func expected(kind corev1.HostPathType) (name string, is func(fs.FileMode) bool) {
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return "directory", fs.FileMode.IsDir
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		return "file", fs.FileMode.IsRegular
	case corev1.HostPathSocket:
		return "socket file", func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 }
	case corev1.HostPathCharDev:
		return "character device", func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }
	case corev1.HostPathBlockDev:
		return "block device", func(m fs.FileMode) bool { return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0 }
	default:
		return "", nil
	}
}
