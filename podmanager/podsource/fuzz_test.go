package podsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzDecodeFile(f *testing.F) {
	for _, text := range []string{
		"", "---", "--- x", "a: b: c", "{", "[]", "\x00", "~", "&a [*a]", "a: &a {<<: *a}",
		podWith("", ""), podWith("", "") + "---\n" + podWith("", ""),
		podWith("volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /a}]"),
		podWith("", "livenessProbe: {httpGet: {port: http}}\nresources: {limits: {cpu: 1}}"),
		podWith("", "lifecycle: {preStop: {sleep: {seconds: 5}}}"),
		podWith("terminationGracePeriodSeconds: null", "env: [null]"),
		"? a\n: b\n", "1: 2\n", "a: 2001-01-01\n", "a: !!binary aGk=\n", "a: .inf\n", "a: [b, {c: d}]\n...\n%YAML 1.1\n---\n",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"a":1,"a":2}]}}`,
	} {
		f.Add(true, []byte(text))
		f.Add(false, []byte(text))
	}
	f.Fuzz(func(t *testing.T, isJSON bool, data []byte) {
		file := "f.yaml"
		if isJSON {
			file = "f.json"
		}
		manifests, problems := decodeFile(file, data, origin{node: "Node1"})
		require.NotEqual(t, len(manifests) == 0, len(problems) == 0, "pods or problems, and never both")
		for _, p := range problems {
			require.Error(t, p.Err)
			require.True(t, strings.HasPrefix(p.Error(), file+": "))
		}
		for i, m := range manifests {
			require.Equal(t, i+1, m.document)
			require.True(t, strings.HasSuffix(m.pod.Name, "-node1"))
			require.NotEmpty(t, m.pod.UID)
			require.NotEmpty(t, m.pod.Namespace)
			require.NotEmpty(t, m.pod.Spec.Containers)
		}
		again, _ := decodeFile(file, data, origin{node: "Node1"})
		require.Equal(t, manifests, again)
	})
}
