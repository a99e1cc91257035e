package oomwatch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/oomwatch"
)

func TestParseCgroup(t *testing.T) {
	const (
		uuid  = "8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11"
		hash  = "d8bc3bca0a3ad6c5f4a4dbf3c5b0e5b2"
		id    = "f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef"
		other = "62beac44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef"
	)
	slice := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uuid, "-", "_") + ".slice"
	for name, c := range map[string]struct{ path, pod, container string }{
		"cgroupfs":                            {"/kubepods/burstable/pod" + uuid + "/" + id, uuid, id},
		"guaranteed":                          {"/kubepods/pod" + uuid + "/" + id, uuid, id},
		"static pod":                          {"/kubepods/besteffort/pod" + hash + "/" + id, hash, id},
		"the pod itself":                      {"/kubepods/besteffort/pod" + uuid, uuid, ""},
		"systemd, containerd":                 {slice + "/cri-containerd-" + id + ".scope", uuid, id},
		"systemd, CRI-O":                      {slice + "/crio-" + id + ".scope", uuid, id},
		"systemd, CRI-O, inner":               {slice + "/crio-" + id + ".scope/container", uuid, id},
		"systemd, Docker":                     {slice + "/docker-" + id + ".scope", uuid, id},
		"systemd, static pod":                 {"/kubepods.slice/kubepods-pod" + hash + ".slice/crio-" + id + ".scope", hash, id},
		"systemd, the pod itself":             {slice, uuid, ""},
		"drivers that do not agree":           {"/system.slice/kubepods-burstable-pod" + strings.ReplaceAll(uuid, "-", "_") + ".slice:cri-containerd:" + id, uuid, id},
		"systemd in a container":              {"/kubepods/burstable/pod" + uuid + "/" + id + "/init.scope", uuid, id},
		"a container in a container":          {"/kubepods/burstable/pod" + uuid + "/" + id + "/docker/" + other, uuid, id},
		"a node in a container":               {"/docker/" + other + "/kubelet/kubepods/burstable/pod" + uuid + "/" + id, uuid, id},
		"a node in a systemd node":            {"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + strings.ReplaceAll(uuid, "-", "_") + ".slice/cri-containerd-" + id + ".scope", uuid, id},
		"no pod above the container":          {"/k8s.io/" + id, "", id},
		"an infra container":                  {slice + "/crio-conmon-" + id + ".scope", uuid, id},
		"a service":                           {"/system.slice/sshd.service", "", ""},
		"all pods":                            {"/kubepods.slice", "", ""},
		"a name that only resembles a pod's":  {"/kubepods/podcast/" + "x", "", ""},
		"a slice that only resembles a pod's": {"/a-pod.slice/b-podx.slice", "", ""},
		"the root":                            {"/", "", ""},
		"nothing":                             {"", "", ""},
		"upper case is no id":                 {"/" + strings.ToUpper(id), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod, container := oomwatch.ParseCgroup(c.path)
			require.Equal(t, types.UID(c.pod), pod)
			require.Equal(t, c.container, container)
		})
	}
}
