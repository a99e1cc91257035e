package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// checkNoKubelet returns an error if a running kubelet uses the runtime at the same
// socket, because a kubelet kills every pod that it does not know. proc is the path of
// the proc file system.
func checkNoKubelet(proc, socket string) error {
	processes, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	if err != nil {
		return fmt.Errorf("search for a running kubelet: %w", err)
	}
	for _, comm := range processes {
		dir := filepath.Dir(comm)
		// An unreadable file means that the process has ended.
		name, err := os.ReadFile(comm)
		if err != nil || strings.TrimSpace(string(name)) != "kubelet" {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		endpoint := kubeletEndpoint(filepath.Join(dir, "root"), strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00"))
		if sameFile(strings.TrimPrefix(endpoint, "unix://"), socket) {
			return fmt.Errorf("a kubelet (process %s) uses the runtime at %s and would kill the pods of this agent: stop the kubelet, or use another runtime", filepath.Base(dir), endpoint)
		}
	}
	return nil
}

// kubeletEndpoint returns the runtime endpoint of a kubelet with this command line. It is
// the value of the flag if the flag is set, otherwise the value in the kubelet's
// configuration file, otherwise the default. root is the path of the kubelet's file
// system root, /proc/PID/root.
func kubeletEndpoint(root string, args []string) string {
	if e := flagValue(args, "container-runtime-endpoint"); e != "" {
		return e
	}
	if file := flagValue(args, "config"); file != "" {
		var config struct {
			ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
		}
		data, err := os.ReadFile(filepath.Join(root, file))
		if err == nil && yaml.Unmarshal(data, &config) == nil && config.ContainerRuntimeEndpoint != "" {
			return config.ContainerRuntimeEndpoint
		}
	}
	return "unix:///run/containerd/containerd.sock"
}

// flagValue returns the last value of a flag, given as --name VALUE or --name=VALUE, with
// one dash or two.
func flagValue(args []string, name string) string {
	value := ""
	for i, a := range args {
		flag, v, hasValue := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch {
		case flag != name || !strings.HasPrefix(a, "-"):
		case hasValue:
			value = v
		case i+1 < len(args):
			value = args[i+1]
		}
	}
	return value
}

// sameFile reports whether two paths lead to the same file. On most hosts, for example,
// /var/run and /run lead to the same folder.
func sameFile(a, b string) bool {
	fa, errA := os.Stat(a)
	fb, errB := os.Stat(b)
	if errA != nil || errB != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	return os.SameFile(fa, fb)
}
