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
	// present is the stamp of the file that is written to: behind all others.
	present = "~"
)

// key is the place of a file in the log of a container.
type key struct {
	attempt uint32
	stamp   string // when it was rotated, or present
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.attempt, other.attempt), strings.Compare(k.stamp, other.stamp))
}

// name is a file of a log.
type name struct {
	key
	file string
	gzip bool
}

// parseName reads the name of a file in a container's folder.
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
		return name{}, false // what is being compressed, or somebody else's
	}
	n.stamp = stamp
	return n, true
}

// sortNames returns the files of a log among the names, in their order. One that is
// there both compressed and not counts once, as it was: the other may be half written,
// or it may be about to go. It is removed last.
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

// folder is the folder of a container's logs, of which nothing leads out.
type folder struct{ root *os.Root }

func openFolder(src Source) (folder, error) {
	all, err := safeopen.Root(src.Root)
	if err != nil {
		return folder{}, noLog(err)
	}
	defer func() { _ = all.Close() }() // nothing was written
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

// close gives the folder back, through which nothing was written.
func (f folder) close() { _ = f.root.Close() }

// list returns the files of the attempts from the given one on.
func (f folder) list(attempt uint32) ([]name, error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // nothing was written
	files, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(sortNames(files), func(n name) bool { return n.attempt < attempt }), nil
}

// open opens a file of the log, also one that was compressed after it was listed.
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

// tries is how often files are opened anew that are renamed meanwhile.
const tries = 10

// errMoved says that a rotation came in between.
var errMoved = errors.New("the log is rotated all the time")

// isMoved says whether it did, which shows in a missing file, too.
func isMoved(err error) bool { return errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) }

// openLast opens the last of the listed files. What is listed and what is open is of
// one moment: a file that gets another name meanwhile is missing in the list, or is in
// it twice, and a second list shows that.
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
		_ = last.close() // nothing was written
		return nil, nil, err
	}
	return names, last, nil
}

// renamed returns the files that a missing one has become, without those up to a key.
// There are none if it was removed. Only what the runtime wrote to gets another name.
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
	info os.FileInfo // as it was opened
	// before is the file that came before it then.
	before key
}

func (l *logFile) close() error { return l.file.Close() }

// reader returns what the file says, uncompressed, from its begin.
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

// unzipped is the content of a compressed file, whose errors name the file.
type unzipped struct {
	io.Reader
	file string
}

// Read reads from the file.
func (u unzipped) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: %w", u.file, err)
	}
	return n, err
}

// isCut says whether the file is shorter by now than what was read of it.
func (l *logFile) isCut(read *splitter) bool {
	info, err := l.file.Stat()
	return err == nil && !l.gzip && info.Size() < read.at
}

// has says whether a name is that of this open file now.
func (l *logFile) has(f folder, n name) bool {
	info, err := f.root.Lstat(n.file)
	return err == nil && os.SameFile(info, l.info)
}

// compressedTo says whether a name is that of what this open file was compressed to,
// which keeps its age.
func (l *logFile) compressedTo(f folder, n name) bool {
	info, err := f.root.Lstat(n.file)
	if err != nil || !n.gzip || l.gzip {
		return false
	}
	now, err := l.file.Stat()
	return err == nil && info.ModTime().Equal(now.ModTime())
}
