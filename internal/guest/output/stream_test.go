//go:build linux

package output

import "testing"

func TestWhatIsKeptOfAStreamIsLimited(t *testing.T) {
	t.Parallel()
	s, err := NewStream()
	if err != nil {
		t.Fatal(err)
	}
	s.limit = 5
	for _, piece := range []string{"abc", "def", "ghi"} {
		if n, err := s.Write([]byte(piece)); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	kept := make([]byte, 9)
	n, _ := s.File.ReadAt(kept, 0) // the file is shorter
	total, dropped := s.Counts()
	if string(kept[:n]) != "abcde" || total != 9 || !dropped {
		t.Errorf("%q is kept of %d bytes, dropped: %v", kept[:n], total, dropped)
	}
}
