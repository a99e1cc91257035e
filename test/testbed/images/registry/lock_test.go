package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestLockedRepository_RequiresItsLogin(t *testing.T) {
	locks := map[string]login{}
	for _, wrong := range []string{"", "x", "x=y", "=u:p"} {
		if addLock(locks, wrong) == nil {
			t.Errorf("an invalid lock was accepted: %q", wrong)
		}
	}
	if err := addLock(locks, "x=kube:a:b"); err != nil {
		t.Fatal(err)
	}
	h := locked{testCatalog(t), locks}
	for _, tc := range []struct {
		path, user, password string
		code                 int
	}{
		{"/v2/", "", "", 200},
		{"/v2/x/manifests/1", "", "", 401},
		{"/v2/x/blobs/sha256:22", "", "", 401},
		{"/v2/x/manifests/1", "kube", "wrong", 401},
		{"/v2/x/manifests/1", "kube", "a:b", 200},
		{"/v2/other/manifests/1", "", "", 404},
	} {
		r := httptest.NewRequest(http.MethodGet, tc.path, nil)
		if tc.user != "" {
			r.SetBasicAuth(tc.user, tc.password)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.code || tc.code == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%v: %d", tc, w.Code)
		}
	}
}
