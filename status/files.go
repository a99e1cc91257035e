package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/atomicfile"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	fileSuffix = ".json"

	podVersion = "v1"
	podKind    = "Pod"
)

// Files is a [Sink] that keeps the status of each pod in a file of its own, for a
// node without an API server: a Pod in JSON with its name, UID and status, named by
// the UID. A file is replaced at once or not at all. What an earlier process left is
// what [Files.Status] returns after [Files.Load]. Make it with [NewFiles]; its
// methods are safe for concurrent use, those of one pod one at a time.
//
// How a pod ended is on the disk when Publish returns. What is said of one that lives
// gets there within the seconds that the system takes: a machine that loses power ends
// the pod as well. It may leave the file of such a status old, or empty, which Load
// names in its error and takes for none. To force each of them would cost a node of 50
// starting pods a twentieth of its time.
type Files struct {
	dir string

	mu    sync.Mutex
	saved map[types.UID]corev1.PodStatus
}

// NewFiles returns a sink into the folder dir, which it does not touch yet.
func NewFiles(dir string) *Files {
	return &Files{dir: dir, saved: map[types.UID]corev1.PodStatus{}}
}

// Load makes the folder if there is none and reads what is in it. Files that cannot
// be read are in the error, which joins them; the others count all the same.
func (f *Files) Load() error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("status files: %w", err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("status files: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(f.dir, entry.Name())
		switch {
		case strings.HasSuffix(entry.Name(), fileSuffix):
			errs = append(errs, f.load(path))
		case strings.HasSuffix(entry.Name(), fileSuffix+atomicfile.Suffix): // a replacement that was cut off
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

func (f *Files) load(path string) error {
	body, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("status file: %w", err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		return fmt.Errorf("status file %s: %w", path, err)
	}
	if pod.APIVersion != podVersion || pod.Kind != podKind {
		return fmt.Errorf("status file %s: holds %q of version %q, not a pod of version %s", path, pod.Kind, pod.APIVersion, podVersion)
	}
	if path != f.path(pod.UID) {
		return fmt.Errorf("status file %s: holds the status of pod %q", path, pod.UID)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved[pod.UID] = pod.Status
	return nil
}

// Status returns what Load found of a pod, for [Config.Saved], until something newer is
// published. It is shared and must not be modified.
func (f *Files) Status(uid types.UID) (corev1.PodStatus, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.saved[uid]
	return s, ok
}

// RemoveOrphans removes the files that Load found of pods that keep does not want:
// pods that went while nobody watched. It returns all failures, joined.
func (f *Files) RemoveOrphans(keep func(types.UID) bool) error {
	f.mu.Lock()
	var orphans []types.UID
	for uid := range f.saved {
		if !keep(uid) {
			orphans = append(orphans, uid)
		}
	}
	f.mu.Unlock()
	var errs []error
	for _, uid := range orphans {
		errs = append(errs, f.remove(uid))
	}
	return errors.Join(errs...)
}

// Publish writes the pod's file.
func (f *Files) Publish(ctx context.Context, change Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, err := json.MarshalIndent(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: podVersion, Kind: podKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: change.Pod.Namespace, Name: change.Pod.Name, UID: change.Pod.UID},
		Status:     change.New,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("status file: %w", err)
	}
	f.mu.Lock()
	delete(f.saved, change.Pod.UID) // from now on somebody knows better
	f.mu.Unlock()
	survives := atomicfile.Process
	if podspec.IsTerminal(change.New.Phase) {
		survives = atomicfile.Durable
	}
	if err := atomicfile.Write(f.path(change.Pod.UID), append(body, '\n'), survives); err != nil {
		return fmt.Errorf("status file: %w", err)
	}
	return nil
}

// Forget removes the pod's file. If that fails, the file is an orphan of the next
// process.
func (f *Files) Forget(uid types.UID) { _ = f.remove(uid) }

func (f *Files) remove(uid types.UID) error {
	f.mu.Lock()
	delete(f.saved, uid)
	f.mu.Unlock()
	if err := os.Remove(f.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("status file: %w", err)
	}
	return nil
}

// path returns the file of a pod. No UID leads out of the folder.
func (f *Files) path(uid types.UID) string {
	return filepath.Join(f.dir, url.PathEscape(string(uid))+fileSuffix)
}
