package podlogs

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

const (
	stampFormat = "20060102-150405"
	compressed  = ".gz"
	// present is the stamp of the file that the runtime writes to. It sorts after all times.
	present = "~"
)

// key is the position of a file in the log of a container.
type key struct {
	attempt uint32
	stamp   string // time of the rotation, or the constant present
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.attempt, other.attempt), strings.Compare(k.stamp, other.stamp))
}

// name is the parsed name of a file of a log.
type name struct {
	key
	file string
	gzip bool
}

// parseName parses the name of a file in a container's folder.
func parseName(file string) (name, bool) {
	number, rest, ok := strings.Cut(file, ".log")
	attempt, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil || number != strconv.FormatUint(attempt, 10) {
		return name{}, false
	}
	n := name{key: key{attempt: uint32(attempt), stamp: present}, file: file}
	if rest == "" {
		return n, true
	}
	rest, n.gzip = strings.CutSuffix(rest, compressed)
	stamp, ok := strings.CutPrefix(rest, ".")
	if _, err := time.Parse(stampFormat, stamp); !ok || err != nil || len(stamp) != len(stampFormat) {
		return name{}, false // the temporary file of a compression, or not a log file
	}
	n.stamp = stamp
	return n, true
}

// sortNames returns those of the given files that are log files, oldest first. If a file exists
// both compressed and uncompressed, sortNames returns only the uncompressed file, because the
// compressed file may be half written. Rotation deletes the uncompressed file when the compressed
// file is complete.
func sortNames(files []string) []name {
	byKey := map[key]name{}
	for _, f := range files {
		n, ok := parseName(f)
		if before, there := byKey[n.key]; ok && (!there || before.gzip) {
			byKey[n.key] = n
		}
	}
	names := make([]name, 0, len(byKey))
	for _, n := range byKey {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b name) int { return a.compare(b.key) })
	return names
}

// folder is the folder of a container's logs. All paths are resolved inside the folder.
type folder struct{ root *os.Root }

func openFolder(src Source) (folder, error) {
	all, err := safeopen.Root(src.Root)
	if err != nil {
		return folder{}, noLog(err)
	}
	defer func() { _ = all.Close() }() // read-only
	root, err := safeopen.Folder(all, src.Dir)
	if err != nil {
		return folder{}, noLog(err)
	}
	return folder{root}, nil
}

func noLog(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoLog
	}
	return err
}

// close closes the folder.
func (f folder) close() { _ = f.root.Close() }

// list returns the files of the given attempt and of later attempts.
func (f folder) list(attempt uint32) ([]name, error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // read-only
	files, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(sortNames(files), func(n name) bool { return n.attempt < attempt }), nil
}

// open opens a file of the log, even if the file was compressed after it was listed.
func (f folder) open(n name) (*logFile, error) {
	file, err := safeopen.File(f.root, n.file)
	if errors.Is(err, fs.ErrNotExist) && n.stamp != present && !n.gzip {
		n.file, n.gzip = n.file+compressed, true
		file, err = safeopen.File(f.root, n.file)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.file, err)
	}
	l := &logFile{name: n, file: file}
	if l.info, err = file.Stat(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

// tries is the maximum number of attempts to open the log while files are renamed.
const tries = 10

// errMoved is returned if the log was rotated during an operation.
var errMoved = errors.New("the log was rotated too often while it was being opened")

// isMoved reports whether a rotation may have caused err. A missing file may be the result of a
// rotation, too.
func isMoved(err error) bool { return errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) }

// openLast opens the last listed file. If a file is renamed during the call, the list may lack the
// file or contain it twice. openLast detects this with a second list, and returns errMoved. So the
// returned list and the open file are consistent.
func (f folder) openLast(list func() ([]name, error)) (names []name, last *logFile, err error) {
	names, err = list()
	if err != nil || len(names) == 0 {
		return nil, nil, err
	}
	if last, err = f.open(names[len(names)-1]); err != nil {
		return nil, nil, err
	}
	if len(names) > 1 {
		last.before = names[len(names)-2].key
	}
	again, err := list()
	if err == nil && !slices.Equal(names, again) {
		err = errMoved
	}
	if err != nil {
		_ = last.close() // read-only
		return nil, nil, err
	}
	return names, last, nil
}

// renamed returns the rotated files that may have the content of a missing file. It omits files up
// to the key upTo, because they were read before. The result is empty if the missing file was
// removed, or if it is a rotated file, because rotated files are never renamed.
func (f folder) renamed(missing name, upTo key) ([]name, error) {
	if missing.stamp != present {
		return nil, nil
	}
	names, err := f.list(missing.attempt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the folder was removed
	}
	return slices.DeleteFunc(names, func(n name) bool {
		return n.attempt != missing.attempt || n.stamp == present || n.compare(upTo) <= 0
	}), err
}

// logFile is an open file of a log.
type logFile struct {
	name
	file *os.File
	info os.FileInfo // from the time of opening
	// before is the key of the file that preceded this file when this file was opened.
	before key
}

func (l *logFile) close() error { return l.file.Close() }

// reader returns the uncompressed content of the file from its start.
func (l *logFile) reader() (io.Reader, error) {
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if !l.gzip {
		return l.file, nil
	}
	z, err := gzip.NewReader(l.file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name.file, err)
	}
	return unzipped{z, l.name.file}, nil
}

// unzipped is the content of a compressed file. Its errors name the file.
type unzipped struct {
	io.Reader
	file string
}

// Read reads uncompressed data.
func (u unzipped) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: %w", u.file, err)
	}
	return n, err
}

// wasTruncated reports whether the file is now shorter than the part that was read.
func (l *logFile) wasTruncated(read *splitter) bool {
	info, err := l.file.Stat()
	return err == nil && !l.gzip && info.Size() < read.at+int64(len(read.pending))
}

// has reports whether n is the current name of this open file.
func (l *logFile) has(f folder, n name) bool {
	info, err := f.root.Lstat(n.file)
	return err == nil && os.SameFile(info, l.info)
}

// compressedTo reports whether n is the compressed copy of this open file. The copy has the
// modification time of the original.
func (l *logFile) compressedTo(f folder, n name) bool {
	info, err := f.root.Lstat(n.file)
	if err != nil || !n.gzip || l.gzip {
		return false
	}
	now, err := l.file.Stat()
	return err == nil && info.ModTime().Equal(now.ModTime())
}
