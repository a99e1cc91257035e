package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/imagegc"
)

// reader reads the facts about a machine. It reads constant facts only in the first call of
// read.
type reader struct {
	machine    machine
	root       string // root folder of the agent
	resolvConf string // empty if NoLookups is set
	constant   func() Facts
}

func newReader(c LocalConfig) *reader {
	r := &reader{machine: c.machine, root: c.Root, resolvConf: c.ResolvConf}
	if c.NoLookups {
		r.resolvConf = ""
	}
	r.constant = sync.OnceValue(r.readConstant)
	return r
}

// readConstant returns the facts that do not change while the machine is running.
func (r *reader) readConstant() Facts {
	return Facts{
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(int64(r.processors()), resource.DecimalSI),
		},
		Info: corev1.NodeSystemInfo{
			MachineID: r.firstText("/etc/machine-id", "/var/lib/dbus/machine-id"),
			SystemUUID: r.firstText("/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id",
				"/proc/device-tree/vm,uuid", "/etc/machine-id"),
			BootID:          r.firstText("/proc/sys/kernel/random/boot_id"),
			KernelVersion:   r.firstText("/proc/sys/kernel/osrelease"),
			OSImage:         osImage(r.firstText("/etc/os-release", "/usr/lib/os-release")),
			OperatingSystem: goruntime.GOOS,
			Architecture:    goruntime.GOARCH,
		},
		CgroupV2: r.firstText("/sys/fs/cgroup/cgroup.controllers") != "",
		AppArmor: strings.HasPrefix(r.firstText("/sys/module/apparmor/parameters/enabled"), "Y"),
		SELinux:  r.firstText("/sys/fs/selinux/enforce") != "",
	}
}

// read returns the current facts. It joins the errors of the facts that it reads in each call. The
// error of resolv.conf is in ResolvConfErr instead.
func (r *reader) read(ctx context.Context) (Facts, error) {
	f := r.constant()
	capacity := f.Capacity.DeepCopy()
	f.Capacity = capacity

	memory, errMemory := r.readMemory()
	if memory.total > 0 {
		capacity[corev1.ResourceMemory] = *resource.NewQuantity(memory.total, resource.BinarySI)
	}
	f.SwapBytes = memory.swap
	disk, errDisk := diskBytes(ctx, r.root)
	if errDisk == nil {
		capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk, resource.BinarySI)
	}
	errPages := r.addHugePages(capacity)

	var errAddresses, errHosts error
	f.Addresses, errAddresses = addresses(r.machine.interfaces)
	f.Hosts, errHosts = os.ReadFile(r.machine.path("/etc/hosts"))
	if errors.Is(errHosts, fs.ErrNotExist) {
		errHosts = nil
	}
	if f.NoLookups = r.resolvConf == ""; !f.NoLookups {
		f.ResolvConf, f.ResolvConfErr = os.ReadFile(r.resolvConf)
	}
	return f, errors.Join(errMemory, errDisk, errPages, errAddresses, errHosts)
}

// firstText returns the text of the first file that is not empty.
func (r *reader) firstText(names ...string) string {
	for _, name := range names {
		data, err := os.ReadFile(r.machine.path(name))
		// Strings of the device tree end with a zero byte.
		if text := strings.Trim(string(data), "\x00 \n"); err == nil && text != "" {
			return text
		}
	}
	return ""
}

// osImage returns the name of the operating system in the text of an os-release file, as cAdvisor
// does. If the text has no name, it returns "Linux". If the text is empty, it returns "".
func osImage(release string) string {
	for line := range strings.Lines(release) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	if release != "" {
		return "Linux"
	}
	return ""
}

// diskBytes returns the size of the filesystem that contains path. If path does not exist,
// diskBytes uses its nearest parent that exists.
func diskBytes(ctx context.Context, path string) (int64, error) {
	usage, err := imagegc.PathFS(path).Usage(ctx)
	if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
		return diskBytes(ctx, parent)
	}
	if err != nil {
		return 0, fmt.Errorf("measure ephemeral storage: %w", err)
	}
	return int64(min(usage.CapacityBytes, math.MaxInt64)), nil
}

// addresses returns the first global unicast address of each family, IPv4 first. If there is no
// such address, it returns 127.0.0.1.
func addresses(interfaces func() ([]net.Addr, error)) ([]netip.Addr, error) {
	all, err := interfaces()
	if err != nil {
		err = fmt.Errorf("list the addresses of the machine: %w", err)
	}
	var v4, v6 netip.Addr
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, _ := netip.AddrFromSlice(n.IP)
		switch ip = ip.Unmap(); {
		case !ip.IsGlobalUnicast():
		case ip.Is4():
			v4 = cmp.Or(v4, ip)
		default:
			v6 = cmp.Or(v6, ip)
		}
	}
	var found []netip.Addr
	for _, ip := range []netip.Addr{v4, v6} {
		if ip.IsValid() {
			found = append(found, ip)
		}
	}
	if len(found) == 0 {
		found = append(found, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return found, err
}
