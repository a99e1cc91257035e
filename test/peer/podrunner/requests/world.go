package requests

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is a node, a pod on the node, and their events.
type world struct {
	Node   node
	Pod    *corev1.Pod
	Images []image
	// PodIPs is the addresses of the pod's sandboxes, as the runtime reports them.
	PodIPs     []string
	ConfigMaps []*corev1.ConfigMap
	Secrets    []*corev1.Secret
	Services   []*corev1.Service
	// Logs is files in the log directory of the first container, from runs that no longer
	// exist in the runtime.
	Logs []string
	// UserIDs is the first of the pod's user IDs if they are on disk already.
	UserIDs uint32
	// Direct is set if our side uses the functions that make a configuration from a spec,
	// without a Runner: for subPaths, which a Runner mounts, and for block devices, which it
	// rejects.
	Direct bool
	// Devices is the devices that a device plugin assigned to each container.
	Devices []device
	Steps   []step

	pods      []*corev1.Pod // the pod in each played step
	hostPorts int32         // how many were drawn
	debugging int           // how many ephemeral containers were drawn
}

// A device is a device that a plugin assigns to the first container, or the name of a CDI
// device.
type device struct{ Host, Container, Permissions, CDI string }

// A step is the events before a turn. In each step, running init containers succeed.
type step struct {
	// Exits is the container that ends, with Code.
	Exits string
	Code  int32
	// SandboxDies stops the sandbox and all containers.
	SandboxDies bool
	// Debug is the ephemeral containers to add.
	Debug []corev1.EphemeralContainer
	// Resize is the container whose resources become Resources.
	Resize    string
	Resources corev1.ResourceRequirements
	// Faults is the failing calls with their errors.
	Faults map[string]string
}

// An image is an image in a registry and on the node.
type image struct {
	Ref     string
	Present bool
	// UID and Username are the image's user. Root is UID 0 or neither.
	UID      *int64
	Username string
	// User is the user whose credentials the pull needs. Fails is an error of the pull with
	// any credentials.
	User, Fails string
}

func (i image) id() string { return "sha256:" + i.Ref }

func (i image) status() *runtimeapi.Image {
	s := &runtimeapi.Image{Id: i.id(), RepoTags: []string{i.Ref}, Username: i.Username, Size: 1000}
	if i.UID != nil {
		s.Uid = &runtimeapi.Int64Value{Value: *i.UID}
	}
	return s
}

// image returns the image that a reference or an id names.
func (w *world) image(ref string) (image, bool) {
	for _, i := range w.Images {
		if ref == i.id() || ref == i.Ref || ref+":latest" == i.Ref {
			return i, true
		}
	}
	return image{}, false
}

// drawImages draws the images that containers may name.
func drawImages(d *judge.Draw) []image {
	all := []image{
		{Ref: "registry.example/app:1", Present: true},
		{Ref: "registry.example/team/tool:2"},
		{Ref: "registry.example/web:latest", Present: true},
		{Ref: "registry.example/pinned@sha256:2d4c5f3a9f0b7a1c8e6d5b4a39281706f5e4d3c2b1a0918273645546372819ab"},
		{Ref: "private.example/secret:3", User: "alice"},
		{Ref: "registry.example/model:1"},
		{Ref: "registry.example/data:latest", Present: true},
		{Ref: "registry.example/broken:1", Fails: judge.Pick(d, "manifest unknown", "RegistryUnavailable: no route", "SignatureValidationFailed: no signature")},
	}
	for i := range all {
		if d.Chance(25) {
			all[i].Present = !all[i].Present
		}
		switch d.Int(8) {
		case 1:
			all[i].UID = new(int64(0))
		case 2:
			all[i].UID = new(int64(1000))
		case 3:
			all[i].UID = new(int64(1) << 32)
		case 4:
			all[i].Username = "app"
		}
	}
	return all
}

// draw makes a world.
func draw(d *judge.Draw) *world {
	w := &world{Node: drawNode(d), Images: drawImages(d)}
	w.PodIPs = judge.Pick(d, []string{"10.1.0.5"}, []string{"10.1.0.5", "fd00::5"}, []string{"fd00::5", "10.1.0.5"},
		[]string{"fd00::5"}, []string{"10.1.0.5", "10.1.0.6", "fd00::5"})
	w.Direct = d.Chance(20)
	w.objects(d)
	w.pod(d)
	if w.Direct {
		w.simplify()
	}
	if d.Chance(30) && !w.Direct {
		for _, name := range []string{"0.log", "2.log", "4.log.20260101-101500", "14.log", "6.log.gz", "8.logs", "x.log", "99999999999999999999.log"} {
			if d.Chance(25) {
				w.Logs = append(w.Logs, name)
			}
		}
	}
	if w.Pod.Spec.HostUsers != nil && !*w.Pod.Spec.HostUsers {
		w.UserIDs = 65536 * uint32(d.Between(1, 5))
	}
	if w.Direct && d.Chance(40) {
		w.Devices = []device{{Host: "/dev/fpga0", Container: "/dev/fpga", Permissions: "rw"}}
		if d.Chance(50) {
			w.Devices = append(w.Devices, device{CDI: "vendor.example/gpu=0"})
		}
	}
	w.steps(d)
	// As the API server and the kubelet's own sources do.
	legacyscheme.Scheme.Default(w.Pod)
	return w
}

// simplify removes features that the functions below a Runner do not handle.
func (w *world) simplify() {
	for i := range w.Images {
		w.Images[i].Present, w.Images[i].User, w.Images[i].Fails = true, "", ""
	}
	for _, all := range [][]corev1.Container{w.Pod.Spec.InitContainers, w.Pod.Spec.Containers} {
		for i := range all {
			all[i].ImagePullPolicy = corev1.PullIfNotPresent
			if _, ok := w.image(all[i].Image); !ok {
				all[i].Image = w.Images[0].Ref
			}
		}
	}
	for i := range w.Pod.Spec.Volumes {
		if v := w.Pod.Spec.Volumes[i].Image; v != nil {
			v.PullPolicy = corev1.PullIfNotPresent
		}
	}
}

func (w *world) objects(d *judge.Draw) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "prod", UID: "uid-of-" + "object"}
	}
	if !d.Chance(4) {
		w.ConfigMaps = append(w.ConfigMaps, &corev1.ConfigMap{
			ObjectMeta: meta("settings"),
			Data:       map[string]string{"COLOR": "blue", "empty": "", "ref": "$(COLOR)", "a.b": "dotted", "multi": "two\nlines"},
		})
	}
	if !d.Chance(4) {
		w.Secrets = append(w.Secrets, &corev1.Secret{
			ObjectMeta: meta("keys"), Data: map[string][]byte{"TOKEN": []byte("t0k"), "bin": {0xff, 0xfe}, "COLOR": []byte("red")},
		})
	}
	if !d.Chance(30) {
		w.Secrets = append(w.Secrets, &corev1.Secret{
			ObjectMeta: meta("registry"), Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
				`{"auths":{"private.example":{"username":"` + judge.Pick(d, "alice", "bob") + `","password":"p"},"registry.example":{"auth":"Y2Fyb2w6cQ=="}}}`)},
		})
	}
	if d.Chance(12) {
		for _, s := range []struct{ namespace, name string }{{"default", "kubernetes"}, {"prod", "data-base"}} {
			w.Services = append(w.Services, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: s.namespace},
				Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{
					{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP},
				}},
			})
		}
	}
}

// steps draws enough turns to start all containers, and some events.
func (w *world) steps(d *judge.Draw) {
	inits := len(w.Pod.Spec.InitContainers)
	for range inits + 1 {
		w.Steps = append(w.Steps, step{})
	}
	if w.Direct {
		return
	}
	if d.Chance(12) {
		at := d.Int(len(w.Steps))
		w.fault(d, &w.Steps[at])
		if call := slices.Sorted(maps.Keys(w.Steps[at].Faults))[0]; strings.HasPrefix(call, "StartContainer") {
			w.Steps = w.Steps[:at+1] // package plan compares the consequences
			return
		}
		w.Steps = append(w.Steps, step{})
	}
	for range d.Int(3) {
		w.Steps = append(w.Steps, w.event(d))
	}
}

func (w *world) fault(d *judge.Draw, s *step) {
	name := w.Pod.Spec.Containers[d.Int(len(w.Pod.Spec.Containers))].Name
	call := judge.Pick(d, "CreateContainer "+name, "StartContainer "+name, "RunPodSandbox")
	s.Faults = map[string]string{call: "the runtime is out of luck"}
}

func (w *world) event(d *judge.Draw) (s step) {
	names := w.Pod.Spec.Containers
	name := names[d.Int(len(names))].Name
	switch d.Int(5) {
	case 0:
		s.Code = judge.Pick[int32](d, 1, 0, 137)
		// Package plan compares the termination of a pod.
		if p := w.Pod.Spec.RestartPolicy; p == corev1.RestartPolicyAlways || p == corev1.RestartPolicyOnFailure && s.Code != 0 {
			s.Exits = name
		}
	case 1:
		s.SandboxDies = w.Pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
	case 2:
		s.Debug = append(s.Debug, ephemeral(d, w, name))
	case 3:
		if w.Pod.Spec.Resources == nil && !w.Node.MemoryQoS && w.Pod.Spec.PriorityClassName == "" {
			r := resized(d, w, named(w.Pod, name).Resources)
			after := w.Pod.DeepCopy()
			named(after, name).Resources = *r.DeepCopy()
			legacyscheme.Scheme.Default(after)
			same := v1qos.ComputePodQOS(after) == v1qos.ComputePodQOS(w.Pod) // the API server refuses others
			if same && !slices.ContainsFunc(w.Steps, func(s step) bool { return s.Resize != "" }) {
				s.Resize, s.Resources = name, r
			}
		}
	}
	return s
}

// resized returns changed resources. Only CPU and memory can change.
func resized(d *judge.Draw, w *world, r corev1.ResourceRequirements) corev1.ResourceRequirements {
	now, drawn := *r.DeepCopy(), resources(d, w)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		for _, lists := range [][2]*corev1.ResourceList{{&now.Requests, &drawn.Requests}, {&now.Limits, &drawn.Limits}} {
			to, from := lists[0], *lists[1]
			if *to == nil {
				*to = corev1.ResourceList{}
			}
			delete(*to, name)
			if q, ok := from[name]; ok {
				(*to)[name] = q
			}
		}
	}
	return now
}
