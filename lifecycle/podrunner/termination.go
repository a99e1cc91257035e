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

// Limits of termination messages in a pod's status, the same as the kubelet's.
const (
	// MaxTerminationMessageBytes is the limit for one container.
	MaxTerminationMessageBytes = 4096
	// MaxPodTerminationMessageBytes is the limit for all containers of a pod
	// together.
	MaxPodTerminationMessageBytes = 12 << 10

	maxLogTailBytes, maxLogTailLines = 2048, 80
)

// TerminationMessageShare returns the limit in bytes of the termination message
// of each container of a pod. containers is the number of the pod's init,
// regular and ephemeral containers together.
func TerminationMessageShare(containers int) int {
	return min(MaxTerminationMessageBytes, MaxPodTerminationMessageBytes/max(containers, 1))
}

// MakeTerminationLog creates an empty file for the termination message of one
// instance of a container, below the pod's directory in podRoot
// (containers/NAME/ATTEMPT), and returns its path. The file is world-writable.
// MakeTerminationLog follows no links below podRoot. A [Runner] removes the
// file together with the pod's directory. When the Runner creates the file of a
// later instance, it also removes the files of instances that the runtime no
// longer has.
func MakeTerminationLog(podRoot string, uid types.UID, container string, attempt uint32) (path string, err error) {
	names := []string{string(uid), containersFolder, container}
	folder, err := makeAndOpen(podRoot, 0o750, names...)
	if err != nil {
		return "", fmt.Errorf("create termination log: %w", err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	file := terminationLogFile(attempt)
	if err := makeFile(folder, file); err != nil {
		return "", fmt.Errorf("create termination log: %w", err)
	}
	return filepath.Join(append(append([]string{podRoot}, names...), file)...), nil
}

// makeFile creates an empty world-writable file, and replaces an existing file.
func makeFile(folder *os.Root, name string) error {
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o666), f.Close()) // independent of the umask
}

func terminationLogFile(attempt uint32) string { return strconv.FormatUint(uint64(attempt), 10) }

// dropTerminationLogs removes a container's termination message files, except
// the files whose names are in keep. A container that crashes for weeks would
// otherwise have thousands of files.
func dropTerminationLogs(podRoot string, uid types.UID, container string, keep map[string]bool) (err error) {
	dir, err := os.OpenRoot(podRoot)
	if err != nil {
		return fmt.Errorf("remove old termination logs: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	folder := filepath.Join(string(uid), containersFolder, container)
	names, err := safeopen.ReadNames(dir, folder)
	if err != nil {
		return fmt.Errorf("remove old termination logs: %w", err)
	}
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); err != nil || keep[name] {
			continue
		}
		if err := dir.Remove(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("remove old termination logs: %w", err)
		}
	}
	return nil
}

// TerminationMessage returns the termination message of a container that has
// ended, for its status: at most the last 4096 bytes of the file at its
// terminationMessagePath. The message is the end of the container's log instead
// if four conditions are true: the file is empty, the container failed, its
// terminationMessagePolicy is FallbackToLogsOnError, and its reason is not
// ContainerCannotRun. TerminationMessage also reads the files of a container
// that a kubelet created. For a container that has not ended it returns "".
//
// A container may be able to write to the directories of its files. So
// TerminationMessage reads only regular files, only in the directories of the
// container (UID/containers/NAME and NAMESPACE_NAME_UID/NAME), and not through
// links. A missing message file counts as empty. If a file can't be read, or
// the log does not exist, the message is the text of the error, as in the
// kubelet.
func TerminationMessage(s *runtimeapi.ContainerStatus) string {
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
	case s.GetReason() == "ContainerCannotRun": // the container never ran, so it has no log
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

// owner identifies a container by its pod and its name, which come from the
// container's labels.
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

// messages returns the names of the nested directories, below the root of all
// pods, that contain the container's message files.
func (o owner) messages() []string { return []string{string(o.uid), containersFolder, o.container} }

// logs returns the names of the nested directories, below the root of all logs,
// that contain the container's logs.
func (o owner) logs() []string {
	return []string{logFolder(o.namespace, o.pod, o.uid), o.container}
}

// messagePath returns the container's message file on the node, or "". If a
// volume of the pod is mounted at the container's terminationMessagePath,
// messagePath does not return a path in the volume.
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

// rootOf returns root if path has the form root/NAMES/FILE, where NAMES are the
// given names of nested directories. Otherwise ok is false.
func rootOf(path string, names []string) (root string, ok bool) {
	if checkFolders(names...) != nil || !filepath.IsAbs(path) {
		return "", false
	}
	return strings.CutSuffix(filepath.Dir(path), string(filepath.Separator)+filepath.Join(names...))
}

// readBelow reads the file at path with the function read. The path must have
// the form root/NAMES/FILE, as for rootOf. An empty path counts as an empty
// file.
func readBelow(path string, names []string, read func(io.ReaderAt, int64) (string, error)) (text string, err error) {
	if path == "" {
		return "", nil
	}
	top, ok := rootOf(path, names)
	if !ok {
		return "", fmt.Errorf("%s is not in the container's directory", path)
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

// ReadTail returns the last bytes of r, at most limit. It removes invalid
// UTF-8, because a status is text. size is the number of bytes in r.
func ReadTail(r io.ReaderAt, size int64, limit int) (string, error) {
	tail, err := lastBytes(r, size, int64(limit))
	return strings.ToValidUTF8(string(tail), ""), err
}

// LogTail returns the end of a container's log in CRI format (TIME STREAM TAG
// TEXT): at most 2048 bytes of the text of its last 80 lines. Lines in another
// format are skipped.
func LogTail(r io.ReaderAt, size int64) (string, error) {
	// The format adds about 45 bytes to each line. If the runtime splits a line
	// into parts of 16 KiB, the format adds these bytes to each part. So 80
	// lines with 2048 bytes of text in total fit into this window.
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

// logLines returns the text of each line. Lines that the runtime split (tag P)
// are joined.
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
		err = nil // the file shrank while it was read
	}
	return tail[:n], err
}
