// Package kubeletconfig reads an agent's configuration from a configuration file of the
// kubelet: a KubeletConfiguration of kubelet.config.k8s.io/v1beta1 (Kubernetes 1.36).
//
// # What it does
//
// [Load] reads and parses a file. [Parse] parses the content of a file. Both return a
// [File], whose [Settings] have the fields that the agent supports. Each field of a
// KubeletConfiguration is of one of three kinds:
//
//   - implemented: the field is a field of Settings, with the kubelet's name, format, range and
//     default;
//   - ignored: the field does not affect safety. The [File] has a note with the reason, which
//     the program should show when the agent starts;
//   - refused: Load and Parse return an error if the file sets the field, because the agent does
//     not have a protection or a function on which the user relies. The refused fields are
//     defaultPodSysctls and imageServiceEndpoint.
//
// All other fields are mistakes. Load and Parse read the whole file, and return all mistakes in
// one error, each with its line.
//
// [Settings.Policies] converts the settings to policies, in the types of the managers'
// configurations:
//
//	file, err := kubeletconfig.Load("/etc/kubernetes/kubelet.yaml")
//	…
//	policies, err := file.Settings.Policies()
//	…
//	collector, err := imagegc.New(imagegc.Config{Policy: policies.ImageGC, …})
//
// An agent that joins a cluster uses [LoadKubelet] instead of Load: every field then has the
// kubelet's own default, and the fields of [ClusterSettings] are also implemented.
//
// [Policies] has no settings for the server, the pod sources, the folders and the runtime's
// endpoint. The program reads these from Settings.
//
// # What you supply
//
// You supply a JSON or YAML file with one document. Relative paths in the file are based on the
// folder of the file, as in the kubelet.
//
// # What it guarantees
//
//  1. Load and Parse report every mistake: unknown fields, fields that are set twice, values of a
//     wrong type, and values out of range. If a file has a mistake, Load and Parse return no
//     settings.
//  2. A field that is not set, or is null, has its default. A field that is 0 or empty also has
//     its default, if the kubelet treats the value as not set.
//  3. If Parse reads the YAML of settings that Load or Parse has returned, it returns the same
//     settings: see [Settings.YAML].
//  4. Policies returns no error for settings that Load or Parse have returned.
//
// # Goroutines and locking
//
// The package starts no goroutines and has no locks. Settings are plain values.
//
// # Differences from the kubelet
//
//   - Some defaults of Load differ, so that an agent can be tried out on a machine in use:
//     address (127.0.0.1), port (10255), containerRuntimeEndpoint (embedded; the value
//     auto is also supported), podLogsDir (in the agent's own folder), cgroupsPerQOS
//     (false, unless cgroupRoot is set), enableProfilingHandler (false), healthzPort
//     (0), authentication.webhook.enabled (false), authorization.mode (AlwaysAllow).
//   - The kubelet logs an unknown field, a field that is set twice and a second
//     document, and continues; ours refuses the file.
//   - If a field is set twice, ours reports the second value as a mistake and also checks
//     the first value; the kubelet uses the last value.
//   - Ours reports the line of each problem, and of each note about a field; the kubelet
//     reports no lines.
//   - The kubelet reads a file of any length; ours refuses a file above 1 MiB.
//   - Ours refuses some files that the kubelet accepts, and accepts some files that the kubelet
//     refuses. Neither ours nor the kubelet uses a field of a file that it refuses.
//   - The kubelet accepts 1e2 as a whole number and yes as true; ours refuses them.
//   - The kubelet refuses null for some durations; ours treats null as not set for
//     every field.
//   - The kubelet supports a second endpoint for images, and default sysctls; ours
//     refuses the fields that configure them.
//   - Ours adds a note to the File if clientCAFile is set and authorization is not, if
//     a cipher suite is insecure, and if tlsCipherSuites has no effect because of
//     tlsMinVersion.
//   - The kubelet reads and validates the fields that ours ignores with a note.
//   - The kubelet accepts some values that can't work, and fails later or ignores these
//     values; ours refuses the file. For eviction see eviction.ParseThresholds. If
//     evictionHard disables default thresholds, ours adds a note to the File
//     (kubernetes#127577).
//   - With mergeDefaultEvictionSettings, the kubelet adds the default thresholds to the
//     field evictionHard. Ours leaves the field as it is in the file, and adds the
//     defaults in Settings.Thresholds and Settings.Policies.
//   - In ours, evictionMaxPodGracePeriod may be negative: each pod then has its own grace period,
//     as the help text of the kubelet's flag describes.
//   - Ours accepts an imageMaximumGCAge that is not longer than imageMinimumGCAge, and still never
//     deletes an image before imageMinimumGCAge; the kubelet refuses the file.
//   - Ours only supports the values pods and none of enforceNodeAllocatable; the kubelet has more
//     values, such as system-reserved.
//   - With cgroupsPerQOS false, which is the default of Load, ours accepts the values pods and
//     none of enforceNodeAllocatable, and sets no cgroup limit for all pods together. The kubelet
//     only accepts cgroupsPerQOS false if enforceNodeAllocatable is set to none.
//   - In ours, settings of pods' cgroups require the driver cgroupfs, and cgroupsPerQOS or a
//     cgroupRoot. The kubelet accepts other combinations, and podPidsLimit 0; ours refuses both.
//   - The kubelet can run without its server; ours refuses enableServer false, because the
//     agent's commands send requests to the server.
//
// The package does not import k8s.io/kubelet/config/v1beta1, because that package depends on
// component-base, whose metrics, flags and feature gates register themselves for the whole process.
// Instead, a test compares this package with the source of the type KubeletConfiguration. This
// package must know every field, with the same type and the documented default.
//
// # Testing your code with it
//
// Settings is a plain struct: start with [Default] and assign fields. Parse needs no file.
package kubeletconfig
