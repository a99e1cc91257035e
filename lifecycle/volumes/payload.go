package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// defaultMode is the API's default mode of files in volumes.
const defaultMode int32 = 0o644

// defaultTokenSeconds is the API's default lifetime of a token.
const defaultTokenSeconds = 3600

// A file is one file of a volume.
type file struct {
	data []byte
	mode int32
	// uid is the owner, nil for the agent's user.
	uid *int64
}

// payload holds the files of a volume, by their paths in the volume.
type payload map[string]file

// MaxPodBytes limits the total size of the files of ConfigMaps, Secrets, tokens
// and the pod's fields in all volumes of a pod. Each file counts in whole pages
// of 4 KiB, at least one. Without the limit, a manifest that names one key or
// field many times could use all memory of the node.
const MaxPodBytes = 64 << 20

const pageBytes = 4 << 10

// payloadBuilder builds the payload of a volume.
type payloadBuilder struct {
	Request

	// allocatable are the node's allocatable resources.
	allocatable corev1.ResourceList
}

// add adds a file to p. It returns an error if the pod's files exceed
// [MaxPodBytes].
func (m *payloadBuilder) add(p payload, name string, f file) error {
	pages := (int64(len(f.data)) + pageBytes - 1) / pageBytes
	if m.batch.left -= max(pages, 1) * pageBytes; m.batch.left < 0 {
		return fmt.Errorf("the files in the pod's volumes have more than %d MiB in total", MaxPodBytes>>20)
	}
	p[name] = f
	return nil
}

func modeOr(mode *int32) int32 {
	if mode == nil {
		return defaultMode
	}
	return *mode
}

// missing reports whether err is about an optional object that does not exist.
func missing(err error, optional *bool) bool {
	return optional != nil && *optional && apierrors.IsNotFound(err)
}

func (m *payloadBuilder) configMap(ctx context.Context, p payload, name string, w selection) error {
	object, err := m.Objects.ConfigMap(ctx, m.Pod, name)
	if missing(err, w.optional) {
		return nil
	}
	if err != nil || object == nil {
		return orNotFound(err, "configmap", name)
	}
	all := maps.Clone(object.BinaryData)
	if all == nil {
		all = map[string][]byte{}
	}
	for key, value := range object.Data {
		all[key] = []byte(value)
	}
	w.missingKeyFormat = "configmap references non-existent config key: %s"
	return m.addItems(p, all, w)
}

func (m *payloadBuilder) secret(ctx context.Context, p payload, name string, w selection) error {
	object, err := m.Objects.Secret(ctx, m.Pod, name)
	if missing(err, w.optional) {
		return nil
	}
	if err != nil || object == nil {
		return orNotFound(err, "secret", name)
	}
	all := maps.Clone(object.Data)
	if all == nil {
		all = map[string][]byte{}
	}
	for key, value := range object.StringData { // set if no API server has merged it into Data
		all[key] = []byte(value)
	}
	w.missingKeyFormat = "references non-existent secret key: %s"
	return m.addItems(p, all, w)
}

func orNotFound(err error, kind, name string) error {
	if err == nil {
		err = fmt.Errorf("%s %q: not found", kind, name)
	}
	return err
}

// selection describes which keys of an object a volume contains, and with which
// modes.
type selection struct {
	items            []corev1.KeyToPath // empty: all keys
	mode             int32
	optional         *bool
	missingKeyFormat string // format of the error about a missing key
}

// addItems adds the key of each item in w.items, at the item's path. If w.items
// is empty, addItems adds all keys, at paths equal to their names. If the object
// is not optional, a missing key is an error.
func (m *payloadBuilder) addItems(p payload, all map[string][]byte, w selection) error {
	if len(w.items) == 0 {
		for key, data := range all {
			if err := m.add(p, key, file{data: data, mode: w.mode}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range w.items {
		data, ok := all[item.Key]
		switch {
		case ok:
			own := w.mode
			if item.Mode != nil {
				own = *item.Mode
			}
			if err := m.add(p, path.Clean(item.Path), file{data: data, mode: own}); err != nil {
				return err
			}
		case w.optional == nil || !*w.optional:
			return fmt.Errorf(w.missingKeyFormat, item.Key)
		}
	}
	return nil
}

func (m *payloadBuilder) downward(p payload, items []corev1.DownwardAPIVolumeFile, mode int32) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = fieldValue(m.Pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = resourceValue(m.Pod, item.ResourceFieldRef, m.allocatable)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef")
		}
		if err != nil {
			return fmt.Errorf("downwardAPI item %q: %w", item.Path, err)
		}
		own := mode
		if item.Mode != nil {
			own = *item.Mode
		}
		if err := m.add(p, path.Clean(item.Path), file{data: []byte(value), mode: own}); err != nil {
			return err
		}
	}
	return nil
}

func (m *payloadBuilder) projected(ctx context.Context, p payload, source *corev1.ProjectedVolumeSource) error {
	mode := modeOr(source.DefaultMode)
	for _, s := range source.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = m.configMap(ctx, p, s.ConfigMap.Name, selection{items: s.ConfigMap.Items, mode: mode, optional: s.ConfigMap.Optional})
		case s.Secret != nil:
			err = m.secret(ctx, p, s.Secret.Name, selection{items: s.Secret.Items, mode: mode, optional: s.Secret.Optional})
		case s.DownwardAPI != nil:
			err = m.downward(p, s.DownwardAPI.Items, mode)
		case s.ServiceAccountToken != nil:
			err = m.token(ctx, p, s.ServiceAccountToken, mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// token adds a token. If all containers run as the same known user, or if the
// pod has an fsGroup, token ignores the given mode, and only this user and this
// group may read the token.
func (m *payloadBuilder) token(ctx context.Context, p payload, s *corev1.ServiceAccountTokenProjection, mode int32) error {
	seconds := int64(defaultTokenSeconds)
	if s.ExpirationSeconds != nil {
		seconds = *s.ExpirationSeconds
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Pod.Name, UID: m.Pod.UID},
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	answer, err := m.Tokens(ctx, m.Pod, request)
	if err != nil {
		return fmt.Errorf("failed to fetch token: %w", err)
	}
	uid := commonUser(m.Pod)
	if uid != nil || fsGroup(m.Pod) != nil {
		mode = 0o600
	}
	return m.add(p, path.Clean(s.Path), file{data: []byte(answer.Status.Token), mode: mode, uid: uid})
}

// commonUser returns the user ID of all of a pod's containers. It returns nil
// if the user ID of a container is unknown, or if the containers have different
// user IDs. It ignores ephemeral containers.
func commonUser(pod *corev1.Pod) (uid *int64) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i, c := range all {
		var own *int64
		if sc := pod.Spec.SecurityContext; sc != nil {
			own = sc.RunAsUser
		}
		if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
			own = sc.RunAsUser
		}
		if own == nil || i > 0 && *own != *uid {
			return nil
		}
		uid = own
	}
	return uid
}

// fsGroup returns the fsGroup of a pod, or nil if it is not set.
func fsGroup(pod *corev1.Pod) *int64 {
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// The kernel's limits for the lengths of paths and names, in bytes.
const (
	maxPath = 4096
	maxName = 255
)

// validate rejects invalid paths. Examples are a path that leads out of the
// volume, a path with a file as a parent directory, and a path that starts with
// two dots. The agent itself uses names that start with two dots in the volume's
// top directory.
func (p payload) validate() error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if err := validPath(name); err != nil {
			return err
		}
		for up := path.Dir(name); up != "."; up = path.Dir(up) {
			if _, ok := p[up]; ok {
				return fmt.Errorf("invalid path %q: %q is a file", name, up)
			}
		}
	}
	return nil
}

func validPath(name string) error {
	switch {
	case name == "" || name == ".":
		return errors.New("invalid path: must not be empty")
	case strings.HasPrefix(name, "/"):
		return fmt.Errorf("invalid path: must be relative path: %s", name)
	case len(name) > maxPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	case strings.HasPrefix(name, ".."):
		return fmt.Errorf("invalid path: must not start with '..': %s", name)
	case !fs.ValidPath(name) || strings.ContainsAny(name, "\x00\\"):
		return fmt.Errorf("invalid path: %q", name)
	}
	for element := range strings.SplitSeq(name, "/") {
		if len(element) > maxName {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxName)
		}
	}
	return nil
}
