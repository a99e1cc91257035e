package podloop

import "github.com/kubeparts/kubeparts/lifecycle/volumes"

// noMounts mounts nothing, so that memory-backed volumes are directories on the disk.
type noMounts struct{}

func (noMounts) Tmpfs(string, int64) error             { return nil }
func (noMounts) Unmount(string) error                  { return nil }
func (noMounts) Mounts() ([]volumes.MountPoint, error) { return nil, nil }
