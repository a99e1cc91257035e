package podrunner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a status takes of a container's last words, as the kubelet has it.
const (
	// MaxTerminationMessageBytes is the most that one container may say.
	MaxTerminationMessageBytes = 4096
	// MaxPodTerminationMessageBytes is the most that all containers of a pod may
	// say together.
	MaxPodTerminationMessageBytes = 12 << 10

	maxLogTailBytes, maxLogTailLines = 2048, 80
)

// TerminationMessageShare is how many bytes of a message the status of each of a
// pod's containers (init, regular and ephemeral ones together) may hold.
func TerminationMessageShare(containers int) int {
	return min(MaxTerminationMessageBytes, MaxPodTerminationMessageBytes/max(containers, 1))
}

// MakeTerminationLog makes an empty file for the last words of an instance of a
// container, which everybody may write to, below the pod's folder in podRoot
// (containers/NAME/ATTEMPT), and returns its path. It follows no link out of
// podRoot. The file goes with the pod's folder; a [Runner] removes it before that, when
// the instance is gone and the next one but one is made.
func MakeTerminationLog(podRoot string, uid types.UID, container string, attempt uint32) (path string, err error) {
	names := []string{string(uid), containersFolder, container}
	if err := makeFolders(podRoot, 0o750, names...); err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	dir, err := os.OpenRoot(podRoot)
	if err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	file := filepath.Join(append(names, wordsFile(attempt))...)
	if err := dir.WriteFile(file, nil, 0o666); err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	if err := dir.Chmod(file, 0o666); err != nil { // whatever the umask is
		return "", fmt.Errorf("make termination log: %w", err)
	}
	return filepath.Join(podRoot, file), nil
}

func wordsFile(attempt uint32) string { return strconv.FormatUint(uint64(attempt), 10) }

// dropTerminationLogs removes the files of instances of a container that are not to be
// kept: one that crashes for weeks would have thousands.
func dropTerminationLogs(podRoot string, uid types.UID, container string, keep map[string]bool) (err error) {
	dir, err := os.OpenRoot(podRoot)
	if err != nil {
		return fmt.Errorf("drop termination logs: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	folder := filepath.Join(string(uid), containersFolder, container)
	entries, err := fs.ReadDir(dir.FS(), filepath.ToSlash(folder))
	if err != nil {
		return fmt.Errorf("drop termination logs: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil || keep[e.Name()] {
			continue
		}
		if err := dir.Remove(filepath.Join(folder, e.Name())); err != nil {
			return fmt.Errorf("drop termination logs: %w", err)
		}
	}
	return nil
}

// TerminationMessage returns the last words of a container that ended: what it
// left in its file at messagePath (on the node), at most 4096 bytes; if that is
// nothing, and the policy says so and it failed, the tail of its log at logPath.
// A message file that does not exist is empty. Where a file can't be read, or the log
// does not exist, the error is the message, as in the kubelet.
func TerminationMessage(messagePath, logPath string, policy corev1.TerminationMessagePolicy, exitCode int32) string {
	message, err := tailOf(messagePath, func(r io.ReaderAt, size int64) (string, error) {
		return ReadTail(r, size, MaxTerminationMessageBytes)
	})
	if err != nil {
		return fmt.Sprintf("Error on reading termination log %s: %v", messagePath, err)
	}
	if message != "" || policy != corev1.TerminationMessageFallbackToLogsOnError || exitCode == 0 {
		return message
	}
	message, err = tailOfLog(logPath)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return message
}

func tailOfLog(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("failed to try resolving symlinks in path %q: %w", path, err)
	}
	return tailOf(file, LogTail)
}

func tailOf(path string, read func(io.ReaderAt, int64) (string, error)) (text string, err error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	return read(f, info.Size())
}

// ReadTail returns the last bytes of what r holds, at most limit, as valid UTF-8:
// a status is text. size is how much r holds.
func ReadTail(r io.ReaderAt, size int64, limit int) (string, error) {
	tail, err := lastBytes(r, size, int64(limit))
	return strings.ToValidUTF8(string(tail), ""), err
}

// LogTail returns the last words of a container's log in CRI's format
// (TIME STREAM TAG TEXT): of its last 80 lines at most 2048 bytes of text. Lines
// that are not in that format are passed over.
func LogTail(r io.ReaderAt, size int64) (string, error) {
	// A line of one byte has some 45 bytes of format, one that the runtime split has
	// it every 16 KiB: 80 lines of 2048 bytes in all are surely within this.
	const window = 64 << 10
	raw, err := lastBytes(r, size, window)
	if err != nil {
		return "", err
	}
	if size > window { // the first line is cut
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	lines := logLines(raw)
	lines = lines[max(0, len(lines)-maxLogTailLines):]
	text := strings.Join(lines, "")
	text = text[max(0, len(text)-maxLogTailBytes):]
	return strings.ToValidUTF8(text, ""), nil
}

// logLines returns the text of each line, joined where a runtime split it (tag P).
func logLines(raw []byte) []string {
	var lines []string
	partial := ""
	for line := range bytes.Lines(raw) {
		parts := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
		if len(parts) < 4 {
			continue
		}
		partial += string(parts[3])
		if tag, _, _ := bytes.Cut(parts[2], []byte(":")); string(tag) == "P" {
			continue
		}
		lines = append(lines, partial+"\n")
		partial = ""
	}
	if partial != "" {
		lines = append(lines, partial)
	}
	return lines
}

func lastBytes(r io.ReaderAt, size, limit int64) ([]byte, error) {
	from := max(0, size-limit)
	tail := make([]byte, max(0, size-from))
	n, err := r.ReadAt(tail, from)
	if errors.Is(err, io.EOF) {
		err = nil // it shrank while it was read
	}
	return tail[:n], err
}
