package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// SetFSGroup changes the group of a mounted volume and of everything in it to
// the pod's fsGroup. The group may then read it and, unless it is read-only,
// write to it; new files in its directories belong to the group too. It does
// nothing without an fsGroup. With the fsGroupChangePolicy OnRootMismatch it
// does nothing if the volume's top directory is right.
//
// As in the kubelet, the plugin decides whether a volume belongs to the group:
// one on a disk usually does, a network share does not. Call it in SetUp when
// the volume was created, not in each call, because containers change the modes
// of their files.
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
	// The top directory is last, because OnRootMismatch takes it as the proof
	// that all was done.
	set := func(name string, info fs.FileInfo) error {
		if err := root.Lchown(name, -1, int(*group)); err != nil {
			return err
		}
		switch {
		case info.IsDir():
			return root.Chmod(name, info.Mode()|folder)
		case info.Mode().Type() == fs.ModeSymlink:
			return nil // a link has no mode of its own
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
