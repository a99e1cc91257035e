package containergc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// LogFolder is the log folder of one pod.
type LogFolder struct {
	// Folder is the name of the folder in [Config].PodLogs.
	Folder string
	// Namespace, Pod and UID are the parts of the folder's name.
	Namespace, Pod string
	UID            types.UID
	// Attempts are the logs in the folder, by container and attempt.
	Attempts []AttemptLogs
}

// AttemptLogs are the log files of one container.
type AttemptLogs struct {
	// Container and Attempt identify the container.
	Container string
	Attempt   uint32
	// Files are the paths of the log files below [Config].PodLogs.
	Files []string
}

// LogLink is a link to a log.
type LogLink struct {
	// Name is the name of the link in [Config].ContainerLogs.
	Name string
	// Log is the path of the log below [Config].PodLogs, empty if the target does not
	// exist.
	Log string
	// ContainerID is the ID of the log's container; it may be truncated. All four fields
	// are parts of the link's name. A field is empty if the name does not have the part.
	ContainerID, Namespace, Pod, Container string
}

// parseFolder parses the name of a pod's log folder: namespace, name and UID, separated by
// underscores. None of these parts contains an underscore.
func parseFolder(name string) (f LogFolder, ok bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return f, false
	}
	return LogFolder{Folder: name, Namespace: parts[0], Pod: parts[1], UID: types.UID(parts[2])}, true
}

// parseLogFile parses the attempt in the name of a log file, rotated or not.
func parseLogFile(name string) (attempt uint32, ok bool) {
	number, rest, found := strings.Cut(name, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	if !found || err != nil || strconv.FormatUint(n, 10) != number {
		return 0, false
	}
	return uint32(n), rest == "log" || strings.HasPrefix(rest, "log.")
}

// parseLink parses the name of a link, see [crilabels.LogLink]. Container names may have
// dashes, IDs have no dashes. Any name that ends in .log is accepted; the fields of missing
// parts are empty.
func parseLink(name string) (l LogLink, ok bool) {
	base, isLog := strings.CutSuffix(name, ".log")
	l = LogLink{Name: name}
	dash := strings.LastIndexByte(base, '-')
	if !isLog || dash < 0 {
		return l, isLog
	}
	l.ContainerID = base[dash+1:]
	if parts := strings.Split(base[:dash], "_"); len(parts) == 3 {
		l.Pod, l.Namespace, l.Container = parts[0], parts[1], parts[2]
	}
	return l, true
}

// readFolders returns the pods' log folders below rootPath. It returns no folders if rootPath
// does not exist. It ignores entries whose names parseFolder does not accept. It does not follow
// links out of the root.
func readFolders(rootPath string) (folders []LogFolder, err error) {
	root, err := safeopen.Root(rootPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pod logs: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("read pod logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		f, ok := parseFolder(e.Name())
		if !ok {
			continue
		}
		// An entry that is not a folder, such as a link, has no logs to read. It is returned
		// nevertheless, so that it is removed with its pod.
		if e.IsDir() {
			errs = append(errs, f.read(root))
		}
		folders = append(folders, f)
	}
	return folders, errors.Join(errs...)
}

// read reads the names of one pod's log files. Entries that are removed meanwhile are
// ignored.
func (f *LogFolder) read(root *os.Root) error {
	containers, err := readDir(root, f.Folder)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if !c.IsDir() {
			continue
		}
		dir := path.Join(f.Folder, c.Name())
		files, err := readDir(root, dir)
		if err != nil {
			return err
		}
		for _, file := range files { // sorted by name: the files of one attempt are adjacent
			n, ok := parseLogFile(file.Name())
			if !ok {
				continue
			}
			last := len(f.Attempts) - 1
			if last < 0 || f.Attempts[last].Container != c.Name() || f.Attempts[last].Attempt != n {
				f.Attempts = append(f.Attempts, AttemptLogs{Container: c.Name(), Attempt: n})
				last++
			}
			f.Attempts[last].Files = append(f.Attempts[last].Files, path.Join(dir, file.Name()))
		}
	}
	return nil
}

// readDir returns the entries of a folder below a root. It returns no entries if the folder
// does not exist.
func readDir(root *os.Root, dir string) ([]fs.DirEntry, error) {
	entries, err := safeopen.ReadDir(root, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read logs: %w", err)
	}
	return entries, nil
}

// readLinks returns the links in dir that have no target or a target below podLogs. Pods
// may be able to create links below podLogs. Therefore a link below podLogs that leads out of
// podLogs is not followed.
func readLinks(dir, podLogs string) (links []LogLink, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read container logs: %w", err)
	}
	var logs *os.Root // nil if podLogs can't be opened
	if podLogs != "" {
		if logs, err = safeopen.Root(podLogs); err == nil {
			defer func() { err = errors.Join(err, logs.Close()) }()
		}
	}
	for _, e := range entries {
		l, ok := parseLink(e.Name())
		if !ok || e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		at := filepath.Join(dir, e.Name())
		l.Log = logOf(at, podLogs)
		if l.Log != "" && logs != nil {
			_, err = logs.Lstat(l.Log)
		} else {
			_, err = os.Stat(at)
		}
		if errors.Is(err, fs.ErrNotExist) {
			l.Log = ""
		} else if l.Log == "" {
			continue
		}
		links = append(links, l)
	}
	return links, nil
}

// logOf returns the path below podLogs to which a link points, or an empty string if it
// points elsewhere.
func logOf(link, podLogs string) string {
	target, err := os.Readlink(link)
	if err != nil || podLogs == "" {
		return ""
	}
	rel, err := filepath.Rel(podLogs, target)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return filepath.ToSlash(rel)
}

// removeBelow removes paths below a root, folders with their content. A path that does
// not exist is no error. Links are removed, not followed.
func removeBelow(rootPath string, paths ...string) (err error) {
	root, err := safeopen.Root(rootPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove logs: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	var errs []error
	for _, p := range paths {
		if err := root.RemoveAll(filepath.FromSlash(p)); err != nil {
			errs = append(errs, fmt.Errorf("remove logs: %w", err))
		}
	}
	return errors.Join(errs...)
}
