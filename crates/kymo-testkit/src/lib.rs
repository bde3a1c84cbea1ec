//! Fixtures, fake trees and peers for tests.
