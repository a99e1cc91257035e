package podsource

import (
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (v *validator) volume(at *field.Path, vol *corev1.Volume) {
	v.named(at.Child("name"), vol.Name, validation.IsDNS1123Label)
	if v.volumes[vol.Name] {
		v.add(field.Duplicate(at.Child("name"), vol.Name))
	}
	v.volumes[vol.Name] = true
	sources := 0
	for _, source := range reflect.ValueOf(vol.VolumeSource).Fields() {
		if !source.IsNil() {
			sources++
		}
	}
	if sources > 1 {
		v.add(field.Forbidden(at, "must not have more than one source"))
	}
	v.volumeSource(at, &vol.VolumeSource)
}

// volumeSource checks a volume source of a supported kind. A pod with a volume of another
// kind is rejected at admission.
func (v *validator) volumeSource(at *field.Path, source *corev1.VolumeSource) {
	if h := source.HostPath; h != nil {
		at := at.Child("hostPath")
		v.required(at.Child("path"), h.Path)
		v.noBackStep(at.Child("path"), h.Path)
		if h.Path == "" {
			return
		}
		optionalOneOf(v, at.Child("type"), h.Type, corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
	}
	if e := source.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		v.invalid(at.Child("emptyDir", "sizeLimit"), e.SizeLimit.String(), "must not be negative")
	}
	if s := source.Secret; s != nil {
		at := at.Child("secret")
		v.required(at.Child("secretName"), s.SecretName)
		v.mode(at.Child("defaultMode"), s.DefaultMode)
		v.items(at.Child("items"), s.Items)
	}
	if c := source.ConfigMap; c != nil {
		at := at.Child("configMap")
		v.required(at.Child("name"), c.Name)
		v.mode(at.Child("defaultMode"), c.DefaultMode)
		v.items(at.Child("items"), c.Items)
	}
	if d := source.DownwardAPI; d != nil {
		at := at.Child("downwardAPI")
		v.mode(at.Child("defaultMode"), d.DefaultMode)
		v.files(at.Child("items"), d.Items)
	}
	if i := source.Image; i != nil {
		at := at.Child("image")
		v.required(at.Child("reference"), i.Reference)
		oneOf(v, at.Child("pullPolicy"), i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	if p := source.Projected; p != nil {
		at := at.Child("projected")
		v.mode(at.Child("defaultMode"), p.DefaultMode)
		for i := range p.Sources {
			v.projection(at.Child("sources").Index(i), &p.Sources[i])
		}
		v.projectedPaths(at, p.Sources)
	}
}

// required checks that value is not empty.
func (v *validator) required(at *field.Path, value string) {
	if value == "" {
		v.add(field.Required(at, ""))
	}
}

// mode checks the permission bits of a file.
func (v *validator) mode(at *field.Path, mode *int32) { between(v, at, mode, 0, 0o777) }

// The shortest and the longest lifetime of a requested token, in seconds.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func (v *validator) projection(at *field.Path, p *corev1.VolumeProjection) {
	sources := 0
	for _, source := range reflect.ValueOf(*p).Fields() {
		if !source.IsNil() {
			sources++
		}
	}
	if sources > 1 {
		v.add(field.Forbidden(at, "must not have more than one source"))
	}
	if s := p.Secret; s != nil {
		v.required(at.Child("secret", "name"), s.Name)
		v.items(at.Child("secret", "items"), s.Items)
	}
	if c := p.ConfigMap; c != nil {
		v.required(at.Child("configMap", "name"), c.Name)
		v.items(at.Child("configMap", "items"), c.Items)
	}
	if d := p.DownwardAPI; d != nil {
		v.files(at.Child("downwardAPI", "items"), d.Items)
	}
	if t := p.ServiceAccountToken; t != nil {
		at := at.Child("serviceAccountToken")
		if v.spec.ServiceAccountName == "" {
			v.add(field.Forbidden(at, "requires a serviceAccountName in the pod"))
		}
		v.inside(at.Child("path"), t.Path)
		between(v, at.Child("expirationSeconds"), t.ExpirationSeconds, minTokenSeconds, maxTokenSeconds)
	}
}

// projectedPaths checks that no two files of a projected volume have the same path. It
// ignores service account tokens.
func (v *validator) projectedPaths(at *field.Path, sources []corev1.VolumeProjection) {
	seen := make(map[string]bool)
	for _, s := range sources {
		for _, path := range filesOf(&s) {
			if seen[path] {
				v.invalid(at, path, "conflicting duplicate paths")
			}
			seen[path] = true
		}
	}
}

// filesOf returns the paths of the files that a source names, except the path of a service
// account token. It omits empty paths, except the path of a cluster trust bundle.
func filesOf(s *corev1.VolumeProjection) (paths []string) {
	var items []corev1.KeyToPath
	if s.Secret != nil {
		items = s.Secret.Items
	}
	if s.ConfigMap != nil {
		items = slices.Concat(items, s.ConfigMap.Items)
	}
	for _, item := range items {
		paths = append(paths, item.Path)
	}
	if s.DownwardAPI != nil {
		for _, item := range s.DownwardAPI.Items {
			paths = append(paths, item.Path)
		}
	}
	if c := s.PodCertificate; c != nil {
		paths = append(paths, c.CredentialBundlePath, c.KeyPath, c.CertificateChainPath)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == "" })
	if c := s.ClusterTrustBundle; c != nil {
		paths = append(paths, c.Path)
	}
	return paths
}

func (v *validator) items(at *field.Path, items []corev1.KeyToPath) {
	for i := range items {
		at := at.Index(i)
		v.required(at.Child("key"), items[i].Key)
		v.inside(at.Child("path"), items[i].Path)
		v.mode(at.Child("mode"), items[i].Mode)
	}
}

func (v *validator) files(at *field.Path, items []corev1.DownwardAPIVolumeFile) {
	for i, item := range items {
		at := at.Index(i)
		v.inside(at.Child("path"), item.Path)
		v.mode(at.Child("mode"), item.Mode)
		switch field, resource := item.FieldRef, item.ResourceFieldRef; {
		case field != nil:
			v.fieldRef(at.Child("fieldRef"), field, fileFields)
			if resource != nil {
				v.invalid(at, resource.Resource, "must have exactly one of fieldRef and resourceFieldRef")
			}
		case resource == nil:
			v.required(at, "")
		default:
			at := at.Child("resourceFieldRef")
			v.required(at.Child("containerName"), resource.ContainerName)
			if resource.ContainerName != "" {
				v.resourceRef(at, resource)
			}
			v.divisor(at.Child("divisor"), resource)
		}
	}
}

// inside checks the path of a file in a volume. The path must be relative and below the
// root of the volume.
func (v *validator) inside(at *field.Path, name string) {
	v.required(at, name)
	v.relative(at, name)
	if strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../") {
		v.invalid(at, name, `must not begin with ".."`)
	}
}

func (v *validator) relative(at *field.Path, name string) {
	if path.IsAbs(name) {
		v.invalid(at, name, "must be a relative path")
	}
	v.noBackStep(at, name)
}

func (v *validator) noBackStep(at *field.Path, name string) {
	if slices.Contains(strings.Split(name, "/"), "..") {
		v.invalid(at, name, `must not contain ".."`)
	}
}

func (v *validator) mounts(at *field.Path, c *corev1.Container) {
	paths := make(map[string]bool)
	for i, m := range c.VolumeMounts {
		at := at.Child("volumeMounts").Index(i)
		v.declared(at.Child("name"), m.Name)
		switch {
		case m.MountPath == "":
			v.add(field.Required(at.Child("mountPath"), ""))
		case paths[m.MountPath]:
			v.add(field.Duplicate(at.Child("mountPath"), m.MountPath))
		}
		paths[m.MountPath] = true
		v.relative(at.Child("subPath"), m.SubPath)
		v.relative(at.Child("subPathExpr"), m.SubPathExpr)
		if m.SubPath != "" && m.SubPathExpr != "" {
			v.add(field.Forbidden(at.Child("subPathExpr"), "must not be set together with subPath"))
		}
		v.propagation(at, c, &m)
	}
	for i, d := range c.VolumeDevices {
		v.declared(at.Child("volumeDevices").Index(i).Child("name"), d.Name)
	}
}

// propagation checks the mount propagation between container and host, and the recursive
// read-only setting.
func (v *validator) propagation(at *field.Path, c *corev1.Container, m *corev1.VolumeMount) {
	optionalOneOf(v, at.Child("mountPropagation"), m.MountPropagation,
		corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
	none := m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone
	if !none && *m.MountPropagation == corev1.MountPropagationBidirectional && !isPrivileged(c.SecurityContext) {
		v.add(field.Forbidden(at.Child("mountPropagation"), "Bidirectional is only allowed for privileged containers"))
	}
	optionalOneOf(v, at.Child("recursiveReadOnly"), m.RecursiveReadOnly,
		corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return
	}
	if !m.ReadOnly {
		v.add(field.Forbidden(at.Child("recursiveReadOnly"), "requires readOnly"))
	}
	if !none {
		v.add(field.Forbidden(at.Child("recursiveReadOnly"), "requires mountPropagation None"))
	}
}

func (v *validator) declared(at *field.Path, volume string) {
	switch {
	case volume == "":
		v.add(field.Required(at, ""))
	case !v.volumes[volume]:
		v.add(field.NotFound(at, volume))
	}
}
