package podsource

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The kubelet's limits for the DNS settings of a pod, and the kernel's limit for a host
// name.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchBytes = 2048
	maxHostName    = 64
)

// dns checks the DNS settings of the pod, which are required if dnsPolicy is None.
func (v *validator) dns(at *field.Path) {
	c := v.spec.DNSConfig
	if v.spec.DNSPolicy == corev1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		v.add(field.Required(at.Child("nameservers"), "must be set if dnsPolicy is None"))
		return
	}
	if c == nil {
		return
	}
	if len(c.Nameservers) > maxNameservers {
		v.invalid(at.Child("nameservers"), len(c.Nameservers), fmt.Sprintf("must not be more than %d", maxNameservers))
	}
	for i, ip := range c.Nameservers {
		v.ip(at.Child("nameservers").Index(i), ip)
	}
	at, searches := at.Child("searches"), at
	if len(c.Searches) > maxSearches {
		v.invalid(at, len(c.Searches), fmt.Sprintf("must not be more than %d", maxSearches))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchBytes {
		v.invalid(at, len(c.Searches), fmt.Sprintf("must not have more than %d characters together", maxSearchBytes))
	}
	for i, name := range c.Searches {
		if name != "." {
			v.invalid(at.Index(i), name, validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(name, "."))...)
		}
	}
	for i, o := range c.Options {
		if o.Name == "" {
			v.add(field.Required(searches.Child("options").Index(i), "the option must have a name"))
		}
	}
}

// ip checks an address. Leading zeros are allowed, as in the kubelet.
func (v *validator) ip(at *field.Path, value string) {
	v.add(validation.IsValidIPForLegacyField(at, value, false, nil)...)
}

// host checks the host names and aliases of the pod, its service account, runtime class and
// operating system.
func (v *validator) host(at *field.Path) {
	s := v.spec
	label := func(name, value string) {
		if value != "" {
			v.invalid(at.Child(name), value, validation.IsDNS1123Label(value)...)
		}
	}
	label("hostname", s.Hostname)
	label("subdomain", s.Subdomain)
	if s.ServiceAccountName != "" {
		v.invalid(at.Child("serviceAccountName"), s.ServiceAccountName, validation.IsDNS1123Subdomain(s.ServiceAccountName)...)
	}
	if s.RuntimeClassName != nil {
		v.invalid(at.Child("runtimeClassName"), *s.RuntimeClassName, validation.IsDNS1123Subdomain(*s.RuntimeClassName)...)
	}
	v.hostnameOverride(at.Child("hostnameOverride"))
	for i, alias := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		v.ip(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			v.invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name)...)
		}
	}
	if s.OS != nil {
		if s.OS.Name == "" {
			v.add(field.Required(at.Child("os", "name"), ""))
		}
		oneOf(v, at.Child("os"), s.OS.Name, corev1.Linux, corev1.Windows)
	}
}

func (v *validator) hostnameOverride(at *field.Path) {
	name := v.spec.HostnameOverride
	if name == nil {
		return
	}
	if isTrue(v.spec.SetHostnameAsFQDN) {
		v.add(field.Forbidden(at, "must not be set if setHostnameAsFQDN is true"))
	}
	if v.spec.HostNetwork {
		v.add(field.Forbidden(at, "must not be set if hostNetwork is true"))
	}
	if len(*name) > maxHostName {
		v.add(field.TooLong(at, "", maxHostName))
	}
	v.invalid(at, *name, validation.IsDNS1123Subdomain(*name)...)
}

// tolerations checks the tolerations of the pod. Numeric comparisons are rejected, as in a
// kubelet without the feature gate for them.
func (v *validator) tolerations(at *field.Path) {
	for i, t := range v.spec.Tolerations {
		at := at.Index(i)
		switch {
		case t.Key != "":
			v.invalid(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key)...)
		case t.Operator != corev1.TolerationOpExists:
			v.invalid(at.Child("operator"), t.Operator, "must be Exists if key is empty")
		}
		oneOf(v, at.Child("operator"), t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
		switch {
		case t.Operator == corev1.TolerationOpExists && t.Value != "":
			v.invalid(at.Child("operator"), t.Value, "value must be empty if operator is Exists")
		case t.Operator == corev1.TolerationOpEqual || t.Operator == "":
			v.invalid(at.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value)...)
		}
		oneOf(v, at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			v.invalid(at.Child("effect"), t.Effect, "must be NoExecute if tolerationSeconds is set")
		}
	}
}
