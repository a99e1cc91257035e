package podsource_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

var _ podspec.Objects = (*podsource.Store)(nil)

// of returns a pod of a namespace. A Store reads only the namespace.
func of(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
}

func newStoreBed(t *testing.T) (*bed, *podsource.Store, *bytes.Buffer) {
	t.Helper()
	b := &bed{t: t, path: t.TempDir(), clock: testingclock.NewFakeClock(time.Unix(1000, 0))}
	store, log := podsource.NewStore(), new(bytes.Buffer)
	var err error
	b.Directory, err = podsource.NewDirectory(podsource.DirectoryConfig{
		Path: b.path, NodeName: "Node1", Clock: b.clock, Store: store,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	return b, store, log
}

const (
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {mode: fast}\nbinaryData: {blob: aGk=}\n"
	secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: pass, namespace: web}\ndata: {old: aGk=, both: aGk=}\nstringData: {both: hunter2}\n"
)

func TestStore_Objects(t *testing.T) {
	t.Parallel()
	b, store, log := newStoreBed(t)
	_, err := store.Secret(t.Context(), of("web"), "pass")
	require.ErrorIs(t, err, podsource.ErrNotRead)
	_, read := store.Snapshot()
	require.False(t, read)

	b.write("all.yaml", configMap+"---\n"+yamlOf("a", "i:1")+"---\n"+secret)
	b.write("names.yaml", yamlOf("conf", "i:1")) // a manifest of another kind
	b.requirePods("a-node1 i:1", "conf-node1 i:1")
	require.Empty(t, b.Problems())
	m, err := store.ConfigMap(t.Context(), of("default"), "conf")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"mode": "fast"}, m.Data)
	require.Equal(t, map[string][]byte{"blob": []byte("hi")}, m.BinaryData)
	s, err := store.Secret(t.Context(), of("web"), "pass")
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"old": []byte("hi"), "both": []byte("hunter2")}, s.Data)
	require.Empty(t, s.StringData)
	require.Equal(t, corev1.SecretTypeOpaque, s.Type)

	_, err = store.Secret(t.Context(), of("default"), "pass")
	require.True(t, apierrors.IsNotFound(err))
	require.EqualError(t, err, `secrets "default/pass" not found`)
	_, err = store.ConfigMap(t.Context(), of("default"), "pass")
	require.True(t, apierrors.IsNotFound(err))
	objects, read := store.Snapshot()
	require.True(t, read)
	require.Equal(t, map[types.NamespacedName]*corev1.Secret{{Namespace: "web", Name: "pass"}: s}, objects.Secrets)
	require.Len(t, objects.ConfigMaps, 1)

	b.remove("all.yaml")
	b.requirePods("conf-node1 i:1")
	_, err = store.Secret(t.Context(), of("web"), "pass")
	require.True(t, apierrors.IsNotFound(err))
	require.Len(t, objects.Secrets, 1, "a returned snapshot must not change")
	require.Empty(t, log.String())
}

func TestStore_BadObjectKeepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	b, store, _ := newStoreBed(t)
	b.write("a.yaml", configMap)
	b.load()
	b.write("a.yaml", configMap+"dtaa: {}\n")
	require.Len(t, b.load().Problems, 1)
	m, err := store.ConfigMap(t.Context(), of("default"), "conf")
	require.NoError(t, err)
	require.Equal(t, "fast", m.Data["mode"])

	b.write("b.yaml", configMap)
	problems := b.load().Problems
	require.Len(t, problems, 2)
	require.ErrorContains(t, problems[1], `metadata.name: Duplicate value: "default/conf"`)
}

func TestDirectory_RejectsObjectsWithoutAStore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", secret)
	problems := b.load().Problems
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], `kind: Unsupported value: "Secret": supported values: "Pod"`)
}

func TestStore_OnlyOneSource(t *testing.T) {
	t.Parallel()
	cfg := podsource.DirectoryConfig{Path: "x", NodeName: "n", Store: podsource.NewStore()}
	_, err := podsource.NewDirectory(cfg)
	require.NoError(t, err)
	_, err = podsource.NewDirectory(cfg)
	require.ErrorContains(t, err, "field Store: another source uses it")
}

// Errors and logs never contain the data of an object.
func TestStore_DataIsNeverLogged(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
	for name, c := range map[string]struct{ text, want string }{
		"not base64":          {head + "data: {a: hunter2!}", "data[a]: Invalid value: \"(hidden)\": must be base64"},
		"a number":            {head + "data: {a: 42424242}", "data[a]: Invalid value: \"(hidden)\": must be a string, not a number"},
		"a list":              {head + "data: {a: [hunter2]}", "must be a string, not a list"},
		"number as text":      {head + "stringData: {a: 42424242}", "stringData[a]: Invalid value"},
		"text as an object":   {head + "data: hunter2", "data: Invalid value: \"(hidden)\": must be an object"},
		"bad type":            {head + "type: {hunter2: hunter2}", "type: Invalid value: \"(hidden)\": must be a string"},
		"bad flag":            {head + "immutable: hunter2", "immutable: Invalid value: \"(hidden)\""},
		"bad time":            {"apiVersion: v1\nkind: Secret\nmetadata: {name: s, creationTimestamp: hunter2}\n", "metadata.creationTimestamp: Invalid value: \"(hidden)\": cannot be decoded"},
		"bad key":             {head + "data: {a b: aGk=}", "data: Invalid value: \"a b\""},
		"no name":             {"apiVersion: v1\nkind: Secret\nmetadata: {namespace: A_B}\nstringData: {a: hunter2}", "metadata.name: Required value; metadata.namespace: Invalid value"},
		"unknown anchor":      {head + "stringData: {a: *hunter2}", "not valid YAML"},
		"odd tag":             {head + "stringData: {a: !!int hunter2}", "not valid YAML"},
		"not YAML":            {head + "stringData:\n  a: hunter2: x\n", "not valid YAML"},
		"not YAML, no kind":   {"stringData:\n  a: hunter2\n \tb\n", "not valid YAML: line"},
		"key twice":           {head + "stringData: {hunter2: a, hunter2: b}", "not valid YAML: line 4"},
		"incomplete TLS":      {head + "type: kubernetes.io/tls\nstringData: {tls.crt: hunter2}", "data[tls.key]: Required value: the type is kubernetes.io/tls"},
		"incomplete SSH":      {head + "type: kubernetes.io/ssh-auth", "data[ssh-privatekey]: Required value"},
		"bad docker config":   {head + "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: hunter2}", "data[.dockerconfigjson]: Invalid value: \"(hidden)\": must be JSON"},
		"no docker config":    {head + "type: kubernetes.io/dockercfg", "data[.dockercfg]: Required value"},
		"bad annotation":      {"apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {a b: hunter2}}\n", "metadata.annotations: Invalid value: \"a b\""},
		"config map":          {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata: {a: {b: hunter2}}", "data[a]: Invalid value: \"(hidden)\""},
		"config map, two":     {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata: {a: hunter2}\nbinaryData: {a: aGk=, c d: aGk=}", "binaryData[a]: Duplicate value: \"a\""},
		"config map, bad key": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata: {a b: hunter2}", "data: Invalid value: \"a b\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _, log := newStoreBed(t)
			b.write("a.yaml", c.text)
			problems := b.load().Problems
			require.Len(t, problems, 1)
			require.ErrorContains(t, problems[0], c.want)
			require.Contains(t, log.String(), "could not use a manifest, will use its last valid version if there is one")
			for _, told := range []string{problems[0].Error(), log.String()} {
				require.NotContains(t, told, "hunter2")
				require.NotContains(t, told, "42424242")
			}
		})
	}
}

func TestStore_SubscribersAreNotified(t *testing.T) {
	t.Parallel()
	b, store, _ := newStoreBed(t)
	synctest.Test(t, func(t *testing.T) {
		told := func(c <-chan struct{}) bool {
			select {
			case _, ok := <-c:
				return ok
			default:
				return false
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		c, ended := store.Subscribe(t.Context()), store.Subscribe(ctx)
		require.True(t, told(c), "there must be an initial notification")
		b.load()
		require.True(t, told(c), "reading an empty directory for the first time must be notified")
		b.write("a.yaml", configMap)
		b.load()
		b.write("b.yaml", secret)
		b.load()
		require.True(t, told(c))
		require.False(t, told(c), "changes must be merged into one notification")
		b.write("c.yaml", yamlOf("a", "i:1"))
		b.write("a.yaml", "# a comment\n"+configMap)
		b.load()
		require.False(t, told(c), "a change of other files must not be notified")

		cancel()
		synctest.Wait()
		<-ended
		_, open := <-ended
		require.False(t, open)
	})
}
