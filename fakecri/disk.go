package fakecri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Disk is the size of a filesystem.
type Disk struct {
	// CapacityBytes is the capacity in bytes. Default 100 GiB.
	CapacityBytes uint64
	// Inodes is the number of inodes. Default 6,553,600.
	Inodes uint64
}

const (
	defaultDiskBytes  = 100 << 30
	defaultDiskInodes = defaultDiskBytes >> 14
)

// DiskUsage is the usage of a filesystem. UsedBytes and AvailableBytes add up to
// CapacityBytes; InodesUsed and InodesFree add up to Inodes.
type DiskUsage struct {
	CapacityBytes, UsedBytes, AvailableBytes uint64
	Inodes, InodesUsed, InodesFree           uint64
}

// DiskUsage returns the current usage of the node's filesystem: by image layers, by files
// of containers, and as set by FillDisk. The response of ImageFsInfo has no capacity.
// Agents read the capacity from the kernel; in tests they can call DiskUsage.
func (n *Node) DiskUsage() DiskUsage {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	return n.diskUsage()
}

// FillDisk sets the bytes and inodes that are used on the filesystem in addition to images
// and containers. It replaces the values of an earlier call. It returns an error if the
// new values exceed the capacity.
func (n *Node) FillDisk(bytes, inodes uint64) error {
	if d := n.cfg.Disk; bytes > d.CapacityBytes || inodes > d.Inodes {
		return fmt.Errorf("fakecri: the values exceed the disk's %d bytes and %d inodes", d.CapacityBytes, d.Inodes)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.otherBytes, n.otherInodes = bytes, inodes
	return nil
}

// diskUsage returns the usage. It counts one inode for every 16 KiB of a layer. Usage
// above the capacity counts as a full disk.
func (n *Node) diskUsage() DiskUsage {
	bytes, inodes := n.otherBytes, n.otherInodes
	for _, size := range n.images.layers() {
		bytes, inodes = saturatingAdd(bytes, size), saturatingAdd(inodes, size>>14)
	}
	for _, c := range n.containers.order {
		u := n.usage(c)
		bytes, inodes = saturatingAdd(bytes, u.diskBytes), saturatingAdd(inodes, u.inodes)
	}
	d := n.cfg.Disk
	bytes, inodes = min(bytes, d.CapacityBytes), min(inodes, d.Inodes)
	return DiskUsage{
		CapacityBytes: d.CapacityBytes, UsedBytes: bytes, AvailableBytes: d.CapacityBytes - bytes,
		Inodes: d.Inodes, InodesUsed: inodes, InodesFree: d.Inodes - inodes,
	}
}

// ImageFsInfo returns the used bytes and inodes of [Node.DiskUsage] for one filesystem,
// which images and containers share.
func (n *Node) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if err := n.enter(ctx, "ImageFsInfo", "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	u := n.diskUsage()
	fs := &runtimeapi.FilesystemUsage{
		Timestamp:  n.wall().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: filesystem},
		UsedBytes:  number(u.UsedBytes),
		InodesUsed: number(u.InodesUsed),
	}
	// containerd returns no container filesystem, because it is the same as the image
	// filesystem.
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{fs}}, nil
}
