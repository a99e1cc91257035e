package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// SetFSGroup gives a mounted volume and all that is in it to the pod's fsGroup, which may
// then read it and, unless it is read-only, write to it; new files in folders are the
// group's, too. Without an fsGroup it does nothing, and with the fsGroupChangePolicy
// OnRootMismatch nothing if the volume's top folder is right.
//
// As in the kubelet, whether a volume is given to the group is for its plugin to decide:
// one on a disk usually is, a network share is not. Call it in SetUp when the volume was
// made, not in each: containers change the modes of their files.
func SetFSGroup(pod *corev1.Pod, m Mount) (err error) {
	group := fsGroup(pod)
	if group == nil {
		return nil
	}
	root, err := os.OpenRoot(m.Path)
	if err != nil {
		return fmt.Errorf("set fsGroup: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	bits := fs.FileMode(0o660)
	if m.ReadOnly {
		bits = 0o440
	}
	top, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("set fsGroup: %w", err)
	}
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	_, gid := ownerOf(top)
	folder := bits | fs.ModeSetgid | 0o110
	if policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch && gid == int(*group) && top.Mode()&folder == folder {
		return nil
	}
	// The top folder is last: it proves to OnRootMismatch that all was done.
	set := func(name string, info fs.FileInfo) error {
		if err := root.Lchown(name, -1, int(*group)); err != nil {
			return err
		}
		switch {
		case info.IsDir():
			return root.Chmod(name, info.Mode()|folder)
		case info.Mode().Type() == fs.ModeSymlink:
			return nil // its mode is that of what it leads to
		default:
			return root.Chmod(name, info.Mode()|bits)
		}
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return set(name, info)
	})
	if err == nil {
		err = set(".", top)
	}
	if err != nil {
		return fmt.Errorf("set fsGroup %d: %w", *group, err)
	}
	return nil
}
