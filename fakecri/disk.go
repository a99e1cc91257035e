package fakecri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Disk is how large a filesystem is.
type Disk struct {
	// CapacityBytes is its size. Default 100 GiB.
	CapacityBytes uint64
	// Inodes is how many files it can have. Default 6,553,600.
	Inodes uint64
}

const (
	defaultDiskBytes  = 100 << 30
	defaultDiskInodes = defaultDiskBytes >> 14
)

// DiskUsage is how full a filesystem is. What is used and what is available are
// the capacity together.
type DiskUsage struct {
	CapacityBytes, UsedBytes, AvailableBytes uint64
	Inodes, InodesUsed, InodesFree           uint64
}

// DiskUsage returns how full the node's filesystem is now: of layers of images,
// of what containers wrote, and of what FillDisk put there. ImageFsInfo tells
// no capacity, so agents ask the kernel for it; under test they can ask here.
func (n *Node) DiskUsage() DiskUsage {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	return n.diskUsage()
}

// FillDisk moves the fill level: beside images and containers so much is on the
// filesystem from now on, in place of what an earlier call said. It fails for
// more than there can be.
func (n *Node) FillDisk(bytes, inodes uint64) error {
	if d := n.cfg.Disk; bytes > d.CapacityBytes || inodes > d.Inodes {
		return fmt.Errorf("fakecri: the disk has %d bytes and %d inodes", d.CapacityBytes, d.Inodes)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.otherBytes, n.otherInodes = bytes, inodes
	return nil
}

// diskUsage counts one inode for every 16 KiB of a layer. A disk that more was
// written to than it has is full.
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

// ImageFsInfo shows what [Node.DiskUsage] says, as one filesystem for images and
// containers alike.
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
	// containerd names no filesystem of containers: it is the images'.
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{fs}}, nil
}
