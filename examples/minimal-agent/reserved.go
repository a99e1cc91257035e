package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// parseReserved reads what is kept from pods, in the kubelet's syntax:
// cpu=200m,memory=500Mi,ephemeral-storage=1Gi.
func parseReserved(text string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, amount, ok := strings.Cut(pair, "=")
		kind := corev1.ResourceName(strings.TrimSpace(name))
		known := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
		if !ok || !slices.Contains(known, kind) {
			return nil, fmt.Errorf("%q: want cpu, memory or ephemeral-storage, =, and an amount", pair)
		}
		q, err := resource.ParseQuantity(strings.TrimSpace(amount))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", pair, err)
		}
		if q.Sign() < 0 {
			return nil, fmt.Errorf("%q is negative", pair)
		}
		if _, twice := out[kind]; twice {
			return nil, fmt.Errorf("%s is there twice", kind)
		}
		out[kind] = q
	}
	return out, nil
}

// reservation is a flag of what is kept from pods.
func reservation(into *corev1.ResourceList) func(string) error {
	return func(text string) error {
		list, err := parseReserved(text)
		if err != nil {
			return err
		}
		*into = list
		return nil
	}
}
