// Package kubeletconfig reads an agent's configuration from a kubelet's file: a
// KubeletConfiguration of kubelet.config.k8s.io/v1beta1 (Kubernetes 1.36).
//
// # What it does
//
// [Load] reads a file and [Parse] its content into [Settings], the fields that the
// agent has. Each field of a KubeletConfiguration is one of three kinds:
//
//   - implemented: a field of Settings, with the kubelet's name, form, range and
//     default;
//   - ignored: it makes no difference to what is safe. It is one of the [File]'s
//     notes, with the reason, to be shown when the agent starts;
//   - refused: whoever sets it relies on a protection or a place that the agent does
//     not have: users and their rights (authentication, authorization), the choice of
//     ciphers, a second endpoint for images.
//
// What is no field of it is a mistake. A file is read whole and every mistake is
// reported at once, with its line.
//
// [Settings.Policies] returns what the settings mean for the managers, in the types that
// their configs have:
//
//	file, err := kubeletconfig.Load("/etc/kubernetes/kubelet.yaml")
//	…
//	policies, err := file.Settings.Policies()
//	…
//	collector, err := imagegc.New(imagegc.Config{Policy: policies.ImageGC, …})
//
// The other settings are the program's own: its server, its sources of pods, its folders
// and the runtime's address.
//
// # What you supply
//
// A file, JSON or YAML, of one document. Paths in it that are not absolute start at
// its folder, as the kubelet's do.
//
// # What it guarantees
//
//  1. A mistake is never passed over: unknown fields, fields that are there twice,
//     values of a wrong type and values out of range are all named, and nothing of a
//     file with a mistake is used.
//  2. A field that is not set, or is null, has its default; so has one that is 0 or
//     empty where the kubelet does not tell that from one that is not set.
//  3. What [Settings.YAML] writes, Parse reads as the same settings.
//  4. Settings that Load or Parse have returned always have policies.
//
// # Goroutines and locking
//
// There are none. Settings are plain values.
//
// # Differences from the kubelet
//
//   - Some defaults differ, because an agent is to be tried out beside other things
//     on a machine: address (127.0.0.1), port (10255), containerRuntimeEndpoint
//     (embedded, and there is auto), podLogsDir (in the agent's own folder),
//     cgroupsPerQOS (false, unless cgroupRoot is set), enableProfilingHandler (false).
//   - The kubelet logs an unknown field, a field that is there twice and a second
//     document, and goes on; ours refuses the file.
//   - Of a field that is there twice, ours checks the first value and the kubelet the
//     last.
//   - Ours names the line of each problem, and of each note about a field; the kubelet
//     names no line.
//   - The kubelet reads a file of any length; ours refuses one above 1 MiB.
//   - A file that only the kubelet accepts sets nothing in ours, and the reverse.
//   - The kubelet takes 1e2 for a whole number and yes for true; ours refuses them.
//   - The kubelet refuses null for some durations; ours takes it for a field that is
//     not set, as everywhere.
//   - The kubelet has users, ciphers, a second endpoint for images and default sysctls;
//     ours refuses the fields that set them.
//   - The kubelet reads and validates the fields that ours ignores with a note.
//   - The kubelet takes some values that cannot work, and fails or goes without them
//     when it uses them; ours refuses them with the file. For eviction see
//     eviction.ParseThresholds. Settings that take away defaults without saying so
//     are a note (kubernetes#127577).
//   - The kubelet adds the default thresholds to evictionHard when it reads
//     mergeDefaultEvictionSettings; ours adds them where it uses the thresholds.
//   - evictionMaxPodGracePeriod may be negative: a pod's own, as with the flag.
//   - imageMaximumGCAge may be shorter than imageMinimumGCAge: both hold.
//   - Of enforceNodeAllocatable there is pods and none.
//   - The kubelet refuses cgroupsPerQOS false unless enforceNodeAllocatable is none;
//     ours does without both by default, and accepts it.
//   - Settings of pods' cgroups need cgroupsPerQOS or a cgroupRoot, and the driver
//     cgroupfs; ours refuses them otherwise, and a limit of 0 processes.
//   - The kubelet can do without its server; ours refuses enableServer false, because
//     its commands ask the server.
//
// The package does not link k8s.io/kubelet/config/v1beta1: that brings
// component-base with it, whose metrics, flags and feature gates register themselves
// for the whole process. A test holds Settings against that type's source instead:
// every field must be known here, of the same type, and with the default that is
// documented there.
//
// # Testing your code with it
//
// Settings are a struct: [Default] and an assignment make any. Parse takes bytes.
package kubeletconfig
