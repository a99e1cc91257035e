//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountDisk mounts a new ext4 file system with a size in MiB and options of mkfs at a
// directory, until the test ends. A test can fill it without affecting other tests.
func mountDisk(t *testing.T, dir string, mebibytes int, mkfs ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	file := filepath.Join(t.TempDir(), "disk.img")
	disk, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, disk.Truncate(int64(mebibytes)<<20))
	require.NoError(t, disk.Close())
	command(t, "mkfs.ext4", append(append([]string{"-q", "-F", "-m", "0"}, mkfs...), file)...)
	command(t, "mount", "-o", "loop", file, dir)
	t.Cleanup(func() { unmount(t, dir) })
}

// mountMemory mounts a tmpfs at a directory until the test ends. It is fast, and its size
// is a whole number of MiB.
func mountMemory(t *testing.T, dir string, mebibytes int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	command(t, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dM", mebibytes), "kpbed-e2e", dir)
	t.Cleanup(func() { unmount(t, dir) })
}

// unmount unmounts a file system after killed processes have closed their files.
func unmount(t *testing.T, dir string) {
	t.Helper()
	waitFor(t, 10*time.Second, dir+" to be unmounted", func() (string, bool) {
		out, err := exec.Command("umount", dir).CombinedOutput()
		return string(out), err == nil
	})
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// smallBed is an additional bed for one test, on a separate small file system.
type smallBed struct {
	*testbed
	*testing.T
}

// smallBedDir plus a number is the directory of a small bed. All runs use the same few
// numbers, so that the next run finds the directories of a killed run.
const smallBedDir = bedDir + ".small"

// newSmallBed starts a small bed until the test ends.
func newSmallBed(t *testing.T, mebibytes int, mkfs ...string) *smallBed {
	t.Helper()
	number := bed.small.Add(1)
	dir := fmt.Sprint(smallBedDir, number)
	require.NoError(t, clearSmallBed(dir))
	mountDisk(t, dir, mebibytes, mkfs...)
	t.Cleanup(func() {
		if err := script("cri-down.sh", dir); err != nil {
			t.Errorf("could not stop the small bed in %s: %v", dir, err)
		}
		// Delete the disk's files, but not its lost+found.
		command(t, "find", dir, "-xdev", "-mindepth", "1", "-delete")
	})
	require.NoError(t, bedUp(dir, "--bridge", fmt.Sprint("kpbedsmall", number), "--cidr", fmt.Sprintf("10.%d.0.0/16", 88+number)))
	b, err := connectBed(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.close()) })
	return &smallBed{testbed: b, T: t}
}

// clearSmallBeds removes what a killed run has left.
func clearSmallBeds() error {
	dirs, err := filepath.Glob(smallBedDir + "*")
	for _, dir := range dirs {
		err = errors.Join(err, clearSmallBed(dir))
	}
	return err
}

func clearSmallBed(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "bed")); err == nil {
		if err := script("cri-down.sh", dir); err != nil {
			return err
		}
	}
	err := syscall.Unmount(dir, syscall.MNT_DETACH)
	// EINVAL means that the directory is not a mount point, ENOENT that it does not exist.
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// addImage creates an image with unique content of this size and imports it.
func (b *smallBed) addImage(name string, mebibytes int) {
	b.Helper()
	dir := b.TempDir()
	random, tar := filepath.Join(dir, "random"), filepath.Join(dir, "image.tar")
	out, err := os.Create(random)
	require.NoError(b, err)
	head := exec.Command("head", "-c", fmt.Sprint(mebibytes<<20), "/dev/urandom")
	head.Stdout = out
	require.NoError(b, head.Run())
	require.NoError(b, out.Close())
	programs := filepath.Dir(b.probe)
	command(b.T, filepath.Join(programs, "mkimage"), "-o", tar, "-name", name,
		"-file", filepath.Join(programs, "testserver")+":/testserver", "-file", random+":/random", "-entrypoint", "/testserver", "-dir", "/tmp:1777")
	b.ctrImages("import", tar)
	require.NoError(b, os.RemoveAll(dir))
}

func (b *smallBed) ctrImages(args ...string) {
	b.Helper()
	out, err := b.ctrCommand(append([]string{"images"}, args...)...).CombinedOutput()
	require.NoError(b, err, "ctr images %v: %s", args, out)
}

// has returns the existing tags.
func (b *smallBed) has() map[string]bool {
	b.Helper()
	list, err := b.images.ListImages(b.Context(), &runtimeapi.ListImagesRequest{})
	require.NoError(b, err)
	all := map[string]bool{}
	for _, i := range list.GetImages() {
		for _, tag := range i.GetRepoTags() {
			all[tag] = true
		}
	}
	return all
}
