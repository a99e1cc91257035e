package podsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func FuzzDecodeFile(f *testing.F) {
	for _, text := range []string{
		"", "---", "--- x", "a: b: c", "{", "[]", "\x00", "~", "&a [*a]", "a: &a {<<: *a}",
		podWith("", ""), podWith("", "") + "---\n" + podWith("", ""),
		podWith("volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /a}]"),
		podWith("", "resources: {limits: {cpu: 92E7000000000000000}}"),
		podWith("", "livenessProbe: {httpGet: {port: http}}\nresources: {limits: {cpu: 1}}"),
		podWith("", "lifecycle: {preStop: {sleep: {seconds: 5}}}"),
		podWith("terminationGracePeriodSeconds: null", "env: [null]"),
		"? a\n: b\n", "1: 2\n", "a: 2001-01-01\n", "a: !!binary aGk=\n", "a: .inf\n", "a: [b, {c: d}]\n...\n%YAML 1.1\n---\n",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"a":1,"a":2}]}}`,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\nbinaryData: {c: aGk=}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {c: aGk=}\nstringData: {a: b}",
	} {
		f.Add(true, []byte(text))
		f.Add(false, []byte(text))
	}
	f.Fuzz(func(t *testing.T, isJSON bool, data []byte) {
		file := "f.yaml"
		if isJSON {
			file = "f.json"
		}
		manifests, problems := decodeFile(file, data, origin{source: podspec.SourceFile, node: "Node1", objects: true})
		require.NotEqual(t, len(manifests) == 0, len(problems) == 0, "a file must have either pods or problems")
		for _, p := range problems {
			require.Error(t, p.Err)
			require.True(t, strings.HasPrefix(p.Error(), file+": "))
		}
		for i, m := range manifests {
			require.Equal(t, i+1, m.document)
			if m.pod == nil {
				require.NotEmpty(t, m.object.GetName())
				require.NotEmpty(t, m.object.GetNamespace())
				continue
			}
			require.True(t, strings.HasSuffix(m.pod.Name, "-node1"))
			require.NotEmpty(t, m.pod.UID)
			require.NotEmpty(t, m.pod.Namespace)
			require.NotEmpty(t, m.pod.Spec.Containers)
		}
		again, _ := decodeFile(file, data, origin{source: podspec.SourceFile, node: "Node1", objects: true})
		require.Equal(t, manifests, again)
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	pod := `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	for _, text := range []string{
		"", "{", "[]", "~", "a: b", podWith("", ""), podWith("", "") + "---\n" + podWith("", ""), "kind: PodList",
		`{"apiVersion":"v1","kind":"PodList","items":[` + pod + `]}`,
		`{"apiVersion":"v1","kind":"PodList","items":[` + pod + `,null,{}]}`,
		"apiVersion: v1\nkind: PodList\nitems: []\n", `{"kind":"PodList","items":{}}`, `{"kind":"PodList","kind":"Pod"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		manifests, problems := decodeResponse("u", data, origin{source: podspec.SourceHTTP, node: "n"})
		if len(manifests) > 0 {
			require.Empty(t, problems, "a file must have either pods or problems")
		}
		for _, m := range manifests {
			require.NotNil(t, m.pod)
			require.NotEmpty(t, m.pod.UID)
			require.NotEmpty(t, m.pod.Spec.Containers)
		}
	})
}

// No problem contains data of a Secret, for any following text in the file.
func FuzzSecretsAreNotTold(f *testing.F) {
	for _, rest := range []string{
		"", "\n", ": x", "\n\tb", "\n---\n", "\nkind: Pod", "\n  k: again", "]", "\ntype: 5", "\n data: {a: b}", "\"", " *x", "\ndata: {k: '%'}",
	} {
		f.Add(rest)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		for _, before := range []string{"", "*", "!!int ", "\"", "[", "{a: ", "&"} {
			text := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  k: " + before + "hunter2" + rest
			_, problems := decodeFile("f.yaml", []byte(text), origin{node: "n", objects: true})
			for _, p := range problems {
				require.NotContains(t, p.Error(), "hunter2", text)
			}
		}
	})
}
