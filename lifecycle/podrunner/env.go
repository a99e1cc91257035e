package podrunner

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// expandAll expands each word of a command line.
func expandAll(words []string, env map[string]string) []string {
	if words == nil {
		return nil
	}
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = expand(w, env)
	}
	return out
}

// expand replaces $(NAME) by the variable's value. $$ is a dollar, so that
// $$(NAME) stays as $(NAME); a name that is not known stays as it is written.
func expand(s string, env map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
			continue
		case strings.HasPrefix(after, "("):
			if name, rest, closed := strings.Cut(after[1:], ")"); closed {
				if value, known := env[name]; known {
					b.WriteString(value)
				} else {
					b.WriteString("$(" + name + ")")
				}
				s = rest
				continue
			}
		}
		b.WriteByte('$')
		s = after
	}
}

// fieldValue resolves a downward-API reference of an environment variable.
func fieldValue(ref *corev1.ObjectFieldSelector, pod *corev1.Pod, podIPs []string, node Node) (string, error) {
	if ref == nil {
		return "", fmt.Errorf("only valueFrom.fieldRef is supported")
	}
	hostIP := first(node.IPs)
	if pod.Spec.HostNetwork {
		podIPs = node.IPs
	}
	switch path := ref.FieldPath; path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return node.Name, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return hostIP, nil
	case "status.hostIPs":
		return strings.Join(node.IPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	default:
		for prefix, values := range map[string]map[string]string{
			"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations,
		} {
			if key, ok := subscript(path, prefix); ok {
				return values[key], nil
			}
		}
		return "", fmt.Errorf("fieldRef: %q is not a field that a variable can take", path)
	}
}

// subscript returns KEY of prefix['KEY'].
func subscript(path, prefix string) (string, bool) {
	key, ok := strings.CutPrefix(path, prefix+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(key, "']")
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
