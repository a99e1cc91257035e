//go:build !linux

package machine

// checkNoKubelet returns nil: kubelets are detected on Linux only.
func checkNoKubelet(_, _ string) error { return nil }
