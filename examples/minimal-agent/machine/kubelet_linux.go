package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// kubeletOn returns an error if a live kubelet serves the same socket. Two
// agents on one runtime undo each other's work: a kubelet kills every pod that
// it does not know. proc is where the process table is, /proc but in tests.
func kubeletOn(proc, socket string) error {
	processes, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	if err != nil {
		return fmt.Errorf("look for a kubelet: %w", err)
	}
	for _, comm := range processes {
		dir := filepath.Dir(comm)
		// A process may end while it is looked at: it is no kubelet then.
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
			return fmt.Errorf("a kubelet (process %s) serves %s: two agents on one runtime undo each other's work", filepath.Base(dir), endpoint)
		}
	}
	return nil
}

// kubeletEndpoint returns the runtime that a kubelet with this command line
// uses: its flag, else its configuration file, else the default.
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

// flagValue returns the value of --name VALUE or --name=VALUE, with one dash or
// two; the last one counts.
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

// sameFile says whether two paths lead to one file; /var/run is /run on most
// machines.
func sameFile(a, b string) bool {
	fa, errA := os.Stat(a)
	fb, errB := os.Stat(b)
	if errA != nil || errB != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	return os.SameFile(fa, fb)
}
