package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// SetFSGroup changes the group of all files and directories in a mounted volume
// to the pod's fsGroup. The group may then read the files. If the volume is not
// read-only, the group may also write to the files. New files in the
// directories belong to the group too. SetFSGroup does nothing if the pod has
// no fsGroup. With the fsGroupChangePolicy OnRootMismatch, it also does nothing
// if the volume's top directory already has the right group and mode.
//
// As in the kubelet, the plugin decides whether a volume belongs to the group:
// a volume on a disk usually does, a network share does not. Call SetFSGroup
// only in the SetUp that has created the volume, because containers change the
// modes of their files later.
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
	// Change the top directory last: with OnRootMismatch, its group and mode
	// mean that everything else was changed.
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
