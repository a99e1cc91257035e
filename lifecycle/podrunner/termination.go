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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/internal/safeopen"
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
// (containers/NAME/ATTEMPT), and returns its path. It follows no link below
// podRoot. The file goes with the pod's folder; a [Runner] removes it before that, when
// the instance is gone and the next one but one is made.
func MakeTerminationLog(podRoot string, uid types.UID, container string, attempt uint32) (path string, err error) {
	names := []string{string(uid), containersFolder, container}
	folder, err := makeAndOpen(podRoot, 0o750, names...)
	if err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	file := wordsFile(attempt)
	if err := makeFile(folder, file); err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	return filepath.Join(append(append([]string{podRoot}, names...), file)...), nil
}

// makeFile makes an empty file that everybody may write to, in the place of what has its name.
func makeFile(folder *os.Root, name string) error {
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o666), f.Close()) // whatever the umask is
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
	names, err := safeopen.ReadNames(dir, folder)
	if err != nil {
		return fmt.Errorf("drop termination logs: %w", err)
	}
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); err != nil || keep[name] {
			continue
		}
		if err := dir.Remove(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("drop termination logs: %w", err)
		}
	}
	return nil
}

// LastWords returns what a container left at its terminationMessagePath, at most 4096
// bytes, or the tail of its log where that is nothing, its policy says so and it
// failed: what a status shows of one that has ended. It reads the container's files, and
// works for those that a kubelet made too. Empty for one that has not ended.
//
// A container may be able to write to the folders of its files. So only regular files are
// read, only where the pod's names lead (UID/containers/NAME and NAMESPACE_NAME_UID/NAME),
// and through no link. A message file that does not exist is empty. Where a file can't be
// read, or the log does not exist, the error is the message, as in the kubelet.
func LastWords(s *runtimeapi.ContainerStatus) string {
	if !exited(s) {
		return ""
	}
	of := ownerOf(s)
	path := of.messagePath(s)
	message, err := readBelow(path, of.messages(), readMessage)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("Error on reading termination log %s: %v", path, err)
	case message != "" || s.GetExitCode() == 0:
		return message
	case s.GetAnnotations()[crilabels.TerminationMessagePolicy] != string(corev1.TerminationMessageFallbackToLogsOnError):
		return ""
	case s.GetReason() == "ContainerCannotRun": // it never ran, and so has no log
		return ""
	}
	message, err = readBelow(s.GetLogPath(), of.logs(), LogTail)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("Error on reading termination message from logs: failed to try resolving symlinks in path %q: %v", s.GetLogPath(), err)
	case err != nil:
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return message
}

// owner is the pod and the name of a container, by its labels.
type owner struct {
	namespace, pod, container string
	uid                       types.UID
}

func ownerOf(s *runtimeapi.ContainerStatus) owner {
	l := s.GetLabels()
	return owner{
		namespace: l[crilabels.PodNamespace], pod: l[crilabels.PodName],
		container: l[crilabels.ContainerName], uid: types.UID(l[crilabels.PodUID]),
	}
}

// messages are the folders of the container's message files below the root of all pods.
func (o owner) messages() []string { return []string{string(o.uid), containersFolder, o.container} }

// logs are the folders of the container's logs below the root of all logs.
func (o owner) logs() []string {
	return []string{logFolder(o.namespace, o.pod, o.uid), o.container}
}

// messagePath returns the container's message file on the node. A volume that is
// mounted at the same place is the pod's, and not read.
func (o owner) messagePath(s *runtimeapi.ContainerStatus) string {
	at := s.GetAnnotations()[crilabels.TerminationMessagePath]
	for _, m := range s.GetMounts() {
		if at == "" || m.GetContainerPath() != absolute(at) {
			continue
		}
		if _, ok := rootOf(m.GetHostPath(), o.messages()); ok {
			return m.GetHostPath()
		}
	}
	return ""
}

// rootOf returns the folder below which a file is in the folders of these names.
func rootOf(path string, names []string) (root string, ok bool) {
	if checkFolders(names...) != nil || !filepath.IsAbs(path) {
		return "", false
	}
	return strings.CutSuffix(filepath.Dir(path), string(filepath.Separator)+filepath.Join(names...))
}

// readBelow reads a file in the folders of these names. No path is an empty file.
func readBelow(path string, names []string, read func(io.ReaderAt, int64) (string, error)) (text string, err error) {
	if path == "" {
		return "", nil
	}
	top, ok := rootOf(path, names)
	if !ok {
		return "", fmt.Errorf("%s is not in the folder of the container", path)
	}
	root, err := safeopen.Root(top)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	f, err := safeopen.File(root, filepath.Join(filepath.Join(names...), filepath.Base(path)))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	return read(f, info.Size())
}

func readMessage(r io.ReaderAt, size int64) (string, error) {
	return ReadTail(r, size, MaxTerminationMessageBytes)
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
