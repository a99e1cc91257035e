package cluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ParseLabels parses labels in the form of the kubelet's flag --node-labels: NAME=VALUE, separated by
// commas. [Config.Validate] checks the names and values.
func ParseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return nil, fmt.Errorf("%q: want NAME=VALUE", pair)
		}
		labels[name] = value
	}
	return labels, nil
}

// ParseTaints parses taints in the form of the kubelet's flag --register-with-taints:
// KEY=VALUE:EFFECT or KEY:EFFECT, separated by commas. [Config.Validate] checks the keys; values and
// effects are not checked.
func ParseTaints(text string) (taints []corev1.Taint, err error) {
	for part := range strings.SplitSeq(text, ",") {
		pair, effect, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			return nil, fmt.Errorf("%q: want KEY=VALUE:EFFECT", part)
		}
		key, value, _ := strings.Cut(pair, "=")
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints, nil
}
