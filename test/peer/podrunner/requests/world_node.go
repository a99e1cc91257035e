package requests

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A node is the kubelet's configuration and the properties of the machine.
type node struct {
	IPs                []string
	Memory, Swap       int64
	Allocatable        corev1.ResourceList
	CgroupV2           bool
	SystemdCgroups     bool
	SwapController     bool
	SwapBehavior       string
	HugePages          []string
	CFSQuota           bool
	CFSPeriod          time.Duration
	SingleOOMKill      *bool
	MemoryQoS          bool
	ThrottlingFactor   float64
	TieredReservation  bool
	SeccompDefault     bool
	SELinux            bool
	ClusterDNS         []string
	ClusterDomain      string
	ResolvConf         *string // nil if the kubelet is configured with an empty path
	RuntimeClasses     map[string]string
	HandlerFeatures    bool // user namespaces and recursive read-only mounts
	SecondHandlerLacks bool
	VerifyEveryPull    bool
	NeverVerifyPulls   bool
}

func drawNode(d *judge.Draw) node {
	n := node{
		IPs:    judge.Pick(d, []string{"192.168.0.1"}, []string{"192.168.0.1", "fd01::1"}, []string{"fd01::1", "192.168.0.1"}, []string{"fd01::1"}),
		Memory: judge.Pick[int64](d, 8<<30, 4<<30, 200e9, 7777777777),
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:              resource.MustParse(judge.Pick(d, "4", "3920m")),
			corev1.ResourceMemory:           resource.MustParse(judge.Pick(d, "7Gi", "900M")),
			corev1.ResourceEphemeralStorage: resource.MustParse("40Gi"),
		},
		CgroupV2:        !d.Chance(35),
		SystemdCgroups:  d.Chance(40),
		SwapController:  d.Chance(50),
		SwapBehavior:    judge.Pick(d, "", "NoSwap", "LimitedSwap"),
		HugePages:       judge.Pick(d, nil, []string{"2MB"}, []string{"2MB", "1GB"}, []string{"64KB", "2MB"}),
		CFSQuota:        !d.Chance(20),
		CFSPeriod:       judge.Pick(d, 100*time.Millisecond, 10*time.Millisecond),
		SingleOOMKill:   judge.Maybe(d, 50, func() bool { return d.Chance(50) }),
		SeccompDefault:  d.Chance(30),
		SELinux:         d.Chance(20),
		ClusterDomain:   judge.Pick(d, "cluster.local", ""),
		HandlerFeatures: !d.Chance(30),
	}
	if d.Chance(30) {
		n.Swap = judge.Pick[int64](d, 4<<30, 1<<20)
	}
	if d.Chance(25) {
		n.MemoryQoS, n.ThrottlingFactor, n.TieredReservation = true, judge.Pick(d, 0.9, 1.0, 0.3, 0.5), d.Chance(50)
	}
	if !d.Chance(25) {
		n.ClusterDNS = judge.Pick(d, []string{"10.96.0.10"}, []string{"10.96.0.10", "fd00:10::a"}, []string{"10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.13"})
	}
	n.ResolvConf = judge.Maybe(d, 85, func() string { return resolvConf(d) })
	n.RuntimeClasses = map[string]string{"kata": "kata-qemu", "plain": ""}
	n.SecondHandlerLacks = d.Chance(40)
	switch d.Int(5) {
	case 1:
		n.VerifyEveryPull = true
	case 2:
		n.NeverVerifyPulls = true
	}
	return n
}

// resolvConf is the node's file.
func resolvConf(d *judge.Draw) string {
	long := strings.Repeat("a", 60)
	var lines []string
	for range d.Int(6) {
		lines = append(lines, judge.Pick(d,
			"nameserver 8.8.8.8",
			"nameserver 1.1.1.1",
			"nameserver fd00::53",
			"nameserver 9.9.9.9 ignored",
			"search corp.example lab.example.",
			"search "+many(long),
			"search "+strings.Repeat(long+".", 5)+"example corp.example",
			"search .",
			"search svc.cluster.local corp.example corp.example",
			"options ndots:2",
			"options timeout:1 attempts:3 timeout:5",
			"options edns0",
			"# nameserver 7.7.7.7",
			"; a comment",
			"domain old.example",
			" \tnameserver\t4.4.4.4",
			"#options rotate",
			"",
		))
	}
	if d.Chance(1) {
		lines = append(lines, "nameserver")
	}
	return strings.Join(lines, "\n")
}

// many returns more search domains than the limit.
func many(long string) string {
	var all []string
	for i := range 31 {
		all = append(all, long+strconv.Itoa(i)+".example")
	}
	return strings.Join(all, " ")
}
